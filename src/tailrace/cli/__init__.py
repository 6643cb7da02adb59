"""The `tailrace` command. One folder per verb; all but `serve`, `log` and `backup` work against any Kafka.

main          entry point: runs `serve` with plain options directly, everything else through `app`; exit codes
app           the table of verbs, put together as one typer application
common/       what verbs share: connection, output, options, offsets, messages
serve/        `tailrace serve`: the broker
topic/        `tailrace topic`: list, show, create, alter, delete, delete-records
produce/      `tailrace produce`: lines to messages
tail/         `tailrace tail`: messages to lines
group/        `tailrace group`: list, show, reset, copy, delete
queue/        `tailrace queue`: create, list, show, peek, work, redrive, purge, set
transaction/  `tailrace transaction`: list, show, abort
lag/          `tailrace lag`: how far groups are behind, when they lose messages, what they have lost
alert/        `tailrace alert`: list, silence, test
gateway/      `tailrace gateway`: topics over HTTP, in front of any Kafka
monitor/      `tailrace monitor`: the monitor by itself, beside any Kafka
config/       `tailrace config`: show and set configs of brokers
quota/        `tailrace quota`: show and set quotas
pipelines/    `tailrace run` and `tailrace replay`: pipelines on Spark
log/          `tailrace log`: verify, dump and repair a data directory, offline
backup/       `tailrace backup`: create, list, verify, restore, prune
doctor/       `tailrace doctor`: checks machine, disk and broker
"""
