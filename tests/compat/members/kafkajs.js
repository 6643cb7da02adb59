// A member of a group; talking.py says what it is told, and what it tells.
'use strict'
const readline = require('node:readline')
const { Kafka, AssignerProtocol, logLevel } = require('kafkajs')

const given = Object.fromEntries(process.argv.slice(2).map((argument) => argument.split(/=(.*)/s)))
const tell = (event, what) =>
  process.stdout.write(JSON.stringify({ at: Number(process.hrtime.bigint()), event, ...what }) + '\n')

// As others do it, so that they can share a group; its own is called RoundRobinAssigner and nobody else has it.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  protocol: ({ topics }) => ({ name: 'range', metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics }) }),
  assign: async ({ members, topics }) => {
    const ids = members.map(({ memberId }) => memberId).sort()
    const assignments = ids.map(() => ({}))
    for (const topic of topics) {
      const partitions = cluster.findTopicPartitionMetadata(topic).map(({ partitionId }) => partitionId)
      partitions.sort((a, b) => a - b)
      const [each, more] = [Math.floor(partitions.length / ids.length), partitions.length % ids.length]
      ids.forEach((_, n) => (assignments[n][topic] = partitions.splice(0, each + (n < more ? 1 : 0))))
    }
    return ids.map((memberId, n) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment: assignments[n] }),
    }))
  },
})

const kafka = new Kafka({
  brokers: [given.bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 300, retries: 200 },
})
const consumer = kafka.consumer({
  groupId: given.group,
  partitionAssigners: [range],
  sessionTimeout: Number(given.session_ms),
  heartbeatInterval: Number(given.heartbeat_ms),
  rebalanceTimeout: Number(given.poll_ms),
  metadataMaxAge: Number(given.metadata_ms),
  maxWaitTimeInMs: Number(given.heartbeat_ms), // it heartbeats between two fetches
  allowAutoTopicCreation: false,
})

let owned = []
const next = new Map() // by topic and partition: what it would commit
let held = null // a promise, while it is to hold
let release = null

const taken = () => {
  next.clear()
  if (owned.length) tell('revoked', { partitions: owned })
  owned = []
}
consumer.on(consumer.events.REBALANCING, taken)
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  taken()
  const assignment = Object.entries(payload.memberAssignment)
  owned = assignment.flatMap(([topic, partitions]) => partitions.map((partition) => [topic, partition]))
  tell('assigned', { partitions: owned })
})

const commit = async () => {
  const offsets = [...next.values()]
  try {
    if (offsets.length) {
      await consumer.commitOffsets(offsets.map(([topic, partition, offset]) => ({ topic, partition, offset: String(offset) })))
    }
    tell('committed', { offsets })
  } catch (error) {
    tell('refused', { text: String(error) })
  }
}

// It asks for messages by itself, and is held by a message that takes long: told, and then kept.
const eachMessage = async ({ topic, partition, message }) => {
  const offset = Number(message.offset)
  next.set(`${topic} ${partition}`, [topic, partition, offset + 1])
  tell('message', { topic, partition, offset, value: message.value.toString() })
  if (held) {
    tell('held')
    await held
  }
}

const verbs = {
  commit,
  hold: () => (held = new Promise((resolve) => (release = resolve))),
  go: () => {
    held = null
    release()
  },
  leave: async () => {
    tell('leaving')
    await consumer.disconnect()
    tell('left')
    process.exit(0)
  },
}

const main = async () => {
  readline
    .createInterface({ input: process.stdin })
    .on('line', (word) => verbs[word]())
    .on('close', () => process.exit(1))
  await consumer.connect()
  await consumer.subscribe({ topics: given.topics.split(','), fromBeginning: true })
  await consumer.run({ autoCommit: false, eachMessage })
}

main()
