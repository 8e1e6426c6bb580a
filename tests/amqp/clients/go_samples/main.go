// Asks and answers with Azure/go-amqp: client ask URL QUEUE, or client answer URL QUEUE.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	amqp "github.com/Azure/go-amqp"
)

func must[T any](found T, err error) T {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	return found
}

func ask(ctx context.Context, session *amqp.Session) {
	sender := must(session.NewSender(ctx, os.Args[3], nil))
	replies := must(session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true}))
	address := replies.Address()
	for number, line := range []string{"Twas brillig, and the slithy toves", "And the mome raths outgrabe."} {
		request := &amqp.Message{
			Properties: &amqp.MessageProperties{ReplyTo: &address, CorrelationID: uint64(number)}, Value: line,
		}
		if err := sender.Send(ctx, request, nil); err != nil {
			must(0, err)
		}
		reply := must(replies.Receive(ctx, nil))
		if err := replies.AcceptMessage(ctx, reply); err != nil {
			must(0, err)
		}
		fmt.Println(reply.Properties.CorrelationID, line, "=>", reply.Value)
	}
}

func answer(ctx context.Context, session *amqp.Session) {
	receiver := must(session.NewReceiver(ctx, os.Args[3], nil))
	relay := must(session.NewSender(ctx, "", nil))
	for {
		request := must(receiver.Receive(ctx, nil))
		properties := &amqp.MessageProperties{
			To: request.Properties.ReplyTo, CorrelationID: request.Properties.CorrelationID,
		}
		reply := &amqp.Message{Properties: properties, Value: strings.ToUpper(request.Value.(string))}
		if err := relay.Send(ctx, reply, nil); err != nil {
			must(0, err)
		}
		if err := receiver.AcceptMessage(ctx, request); err != nil {
			must(0, err)
		}
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	connection := must(amqp.Dial(ctx, os.Args[2], &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}))
	session := must(connection.NewSession(ctx, nil))
	if os.Args[1] == "ask" {
		ask(ctx, session)
	} else {
		answer(ctx, session)
	}
}
