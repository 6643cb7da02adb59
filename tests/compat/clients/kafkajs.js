// KafkaJS, told what to do by kafkajs.py: a line of JSON in, a line of JSON out, one thing at a time.
'use strict'
const readline = require('node:readline')
const { Kafka, CompressionTypes, Partitioners, logLevel } = require('kafkajs')

const kafka = new Kafka({ clientId: 'compat', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
const admin = kafka.admin({ retry: { initialRetryTime: 50, retries: 5 } })
const TOPIC = 2 // a type of resource
let connected = false
let producer = null
let options = null

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))

// Headers are an object; several of one name are an array there.
const headers = (pairs) => {
  const found = {}
  for (const [name, value] of pairs) (found[name] ??= []).push(bytes(value))
  return found
}

const message = ({ value, key, headers: pairs, timestamp, partition }) => ({
  value: bytes(value),
  key: bytes(key),
  headers: headers(pairs),
  ...(timestamp === null ? {} : { timestamp: String(timestamp) }),
  ...(partition === null ? {} : { partition }),
})

const administer = async (what) => {
  if (!connected) await admin.connect()
  connected = true
  return what()
}

const verbs = {
  open: async ({ acks, compression, idempotent }) => {
    options = { acks, compression: compression === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None }
    producer = kafka.producer({
      idempotent,
      maxInFlightRequests: idempotent ? 1 : null,
      createPartitioner: Partitioners.DefaultPartitioner,
      retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 100 },
    })
    await producer.connect()
  },
  send: async ({ topic, messages }) => producer.send({ topic, messages: messages.map(message), ...options }),
  close: async () => producer.disconnect(),
  createTopic: ({ topic, partitions, configs }) =>
    administer(() =>
      admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries: configs }], waitForLeaders: true })
    ),
  topics: () => administer(() => admin.listTopics()),
  describe: ({ topic }) => administer(() => admin.fetchTopicMetadata({ topics: [topic] })),
  addPartitions: ({ topic, total }) =>
    administer(() => admin.createPartitions({ topicPartitions: [{ topic, count: total }] })),
  deleteTopic: ({ topic }) => administer(() => admin.deleteTopics({ topics: [topic] })),
  offsets: ({ topic }) => administer(() => admin.fetchTopicOffsets(topic)),
  configs: ({ topic }) =>
    administer(() => admin.describeConfigs({ resources: [{ type: TOPIC, name: topic }], includeSynonyms: false })),
  setConfigs: ({ topic, configs }) =>
    administer(() =>
      admin.alterConfigs({ validateOnly: false, resources: [{ type: TOPIC, name: topic, configEntries: configs }] })
    ),
  deleteRecords: ({ topic, partition, before }) =>
    administer(async () => {
      await admin.fetchTopicOffsets(topic) // it deletes only in topics it has met
      return admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    }),
  cluster: () => administer(() => admin.describeCluster()),
}

// The broker's own error is wrapped, sometimes twice.
const describe = (error) => {
  let inner = error
  while (inner && typeof inner.code !== 'number') inner = inner.errors?.[0] ?? inner.cause ?? inner.originalError
  return { code: inner ? inner.code : null, text: String(error.stack) }
}

const main = async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { verb, ...given } = JSON.parse(line)
    let answer
    try {
      answer = { done: (await verbs[verb](given)) ?? null }
    } catch (error) {
      answer = { error: describe(error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  if (connected) await admin.disconnect()
}

main().then(() => process.exit(0))
