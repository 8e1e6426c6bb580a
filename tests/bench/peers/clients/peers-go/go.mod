module client

go 1.18

require (
	github.com/nats-io/nats.go v1.28.0
	github.com/rabbitmq/amqp091-go v1.9.0
)

require (
	github.com/klauspost/compress v1.16.7 // indirect
	github.com/nats-io/nkeys v0.4.4 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.11.0 // indirect
	golang.org/x/sys v0.10.0 // indirect
)
