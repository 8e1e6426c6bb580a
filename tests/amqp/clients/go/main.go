// Sends and receives with Azure/go-amqp, which nobody of this project wrote: client URL QUEUE.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	amqp "github.com/Azure/go-amqp"
)

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func open(ctx context.Context) (*amqp.Conn, *amqp.Session) {
	connection, err := amqp.Dial(ctx, os.Args[1], &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	check(err)
	session, err := connection.NewSession(ctx, nil)
	check(err)
	return connection, session
}

// cut lets the door cut the connection, and sends and receives over another one: the library has none of its own.
func cut(ctx context.Context, session *amqp.Session) (*amqp.Conn, *amqp.Session) {
	receiver, err := session.NewReceiver(ctx, os.Args[2], nil)
	check(err)
	last, err := session.NewSender(ctx, "cut", nil)
	check(err)
	_ = last.Send(ctx, amqp.NewMessage([]byte("cut")), nil)
	if _, err = receiver.Receive(ctx, nil); err == nil || ctx.Err() != nil {
		fmt.Println("failed: no cut")
		os.Exit(1)
	}
	connection, session := open(ctx)
	sender, err := session.NewSender(ctx, os.Args[2], nil)
	check(err)
	check(sender.Send(ctx, amqp.NewMessage([]byte("again")), nil))
	receiver, err = session.NewReceiver(ctx, os.Args[2], nil)
	check(err)
	message, err := receiver.Receive(ctx, nil)
	check(err)
	check(receiver.AcceptMessage(ctx, message))
	return connection, session
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	connection, session := open(ctx)
	sender, err := session.NewSender(ctx, os.Args[2], nil)
	check(err)
	bodies := [][]byte{{}, []byte("go"), bytes.Repeat([]byte("x"), 1<<20), bytes.Repeat([]byte("y"), 4_000_000)}
	for _, body := range bodies {
		message := amqp.NewMessage(body)
		message.Header = &amqp.MessageHeader{Durable: true}
		message.ApplicationProperties = map[string]any{"tenant": "blue"}
		check(sender.Send(ctx, message, nil))
	}
	for _, credit := range []int32{1, 1000} {
		receiver, err := session.NewReceiver(ctx, os.Args[2], &amqp.ReceiverOptions{Credit: credit})
		check(err)
		for index, body := range bodies {
			message, err := receiver.Receive(ctx, nil)
			check(err)
			if !bytes.Equal(message.GetData(), body) || message.ApplicationProperties["tenant"] != "blue" {
				fmt.Println("another message than was sent", index, len(message.GetData()))
				os.Exit(1)
			}
			if credit == 1 {
				check(receiver.ReleaseMessage(ctx, message))
				break
			}
			if index == 1 {
				check(receiver.RejectMessage(ctx, message, &amqp.Error{Condition: "app:no", Description: "no"}))
			} else {
				check(receiver.AcceptMessage(ctx, message))
			}
		}
		check(receiver.Close(ctx))
	}
	connection, session = cut(ctx, session)
	_, err = session.NewSender(ctx, "nothing", nil)
	fmt.Println("refused:", err != nil)
	check(connection.Close())
	fmt.Println("done")
}
