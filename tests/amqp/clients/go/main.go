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

// settle sends in each settlement mode, and detaches right after settled messages, which are stored.
func settle(ctx context.Context, session *amqp.Session) {
	modes := []amqp.SenderSettleMode{amqp.SenderSettleModeSettled, amqp.SenderSettleModeUnsettled, amqp.SenderSettleModeMixed}
	for _, mode := range modes {
		sender, err := session.NewSender(ctx, os.Args[2], &amqp.SenderOptions{SettlementMode: mode.Ptr()})
		check(err)
		check(sender.Send(ctx, amqp.NewMessage([]byte("mode")), nil))
		check(sender.Close(ctx))
	}
	receiver, err := session.NewReceiver(ctx, os.Args[2], &amqp.ReceiverOptions{Credit: -1})
	check(err)
	check(receiver.DrainCredit(ctx, nil))
	for range modes {
		check(receiver.IssueCredit(1))
		message, err := receiver.Receive(ctx, nil)
		check(err)
		check(receiver.AcceptMessage(ctx, message))
		check(receiver.DrainCredit(ctx, nil))
	}
	check(receiver.Close(ctx))
}

// quiet opens a connection that is cut unless the door sends something twice a second.
func quiet(ctx context.Context) (*amqp.Conn, time.Time) {
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous(), IdleTimeout: time.Second}
	connection, err := amqp.Dial(ctx, os.Args[1], options)
	check(err)
	return connection, time.Now()
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	connection, session := open(ctx)
	settle(ctx, session)
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
	idle, since := quiet(ctx)
	_, err = session.NewSender(ctx, "nothing", nil)
	fmt.Println("refused:", err != nil)
	check(connection.Close())
	time.Sleep(time.Until(since.Add(2500 * time.Millisecond)))
	_, err = idle.NewSession(ctx, nil)
	check(err)
	check(idle.Close())
	fmt.Println("done")
}
