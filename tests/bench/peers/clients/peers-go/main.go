// The peers' clients in Go: client rabbitmq|nats sender|receiver URL QUEUE.
//
// It prints "ready"; for every line HOW COUNT of standard input it sends or receives so many messages and prints its
// seconds of processor so far. An empty line asks for the seconds alone.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	batch = 100
	size  = 1024
)

// outstanding messages at most, by how they are sent; a batch is waited for as a whole.
var outstanding = map[string]int{"batches": batch, "singly": 64, "pipelined": 10 * batch}

var body = make([]byte, 2*size)

// varied is the body of a message: 512 to 1,535 bytes.
func varied(number int) []byte { return body[:size/2+number*7919%size] }

type work func(how string, count int) error

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// windowed sends messages and waits for each.
func windowed[T any](how string, count int, send func(int) (T, error), wait func(T) error) error {
	var waiting []T
	for number := 0; number < count; number++ {
		one, err := send(number)
		if err != nil {
			return err
		}
		waiting = append(waiting, one)
		take := 0
		if len(waiting) == outstanding[how] {
			take = 1
			if how == "batches" {
				take = batch
			}
		}
		for _, other := range waiting[:take] {
			if err := wait(other); err != nil {
				return err
			}
		}
		waiting = waiting[take:]
	}
	for _, other := range waiting {
		if err := wait(other); err != nil {
			return err
		}
	}
	return nil
}

func rabbitmq(role, url, queue string) work {
	connection, err := amqp.Dial(url)
	must(err)
	channel, err := connection.Channel()
	must(err)
	if role == "sender" {
		must(channel.Confirm(false))
		return func(how string, count int) error {
			send := func(number int) (*amqp.DeferredConfirmation, error) {
				message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: varied(number)}
				return channel.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, false, false, message)
			}
			wait := func(one *amqp.DeferredConfirmation) error {
				if !one.Wait() {
					return fmt.Errorf("a message was refused")
				}
				return nil
			}
			return windowed(how, count, send, wait)
		}
	}
	must(channel.Qos(10*batch, 0, false))
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	must(err)
	return func(how string, count int) error {
		for number := 1; number <= count; number++ {
			one, open := <-deliveries
			if !open {
				return fmt.Errorf("the channel is closed")
			}
			if how == "singly" {
				must(one.Ack(false))
			} else if number%batch == 0 || number == count {
				must(one.Ack(true))
			}
		}
		return nil
	}
}

func jetStream(role, url, queue string) work {
	connection, err := nats.Connect(url)
	must(err)
	stream, err := connection.JetStream(nats.PublishAsyncMaxPending(20 * batch))
	must(err)
	if role == "sender" {
		return func(how string, count int) error {
			send := func(number int) (nats.PubAckFuture, error) { return stream.PublishAsync(queue, varied(number)) }
			wait := func(one nats.PubAckFuture) error {
				select {
				case <-one.Ok():
					return nil
				case err := <-one.Err():
					return err
				}
			}
			return windowed(how, count, send, wait)
		}
	}
	messages, err := stream.PullSubscribe("", queue, nats.Bind(queue, queue))
	must(err)
	return func(_ string, count int) error {
		for count > 0 {
			want := batch
			if count < want {
				want = count
			}
			taken, err := messages.Fetch(want, nats.MaxWait(30*time.Second))
			if err != nil {
				return err
			}
			for _, one := range taken {
				must(one.Ack())
			}
			count -= len(taken)
		}
		return connection.Flush()
	}
}

func processor() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Sec+usage.Stime.Sec) + float64(usage.Utime.Usec+usage.Stime.Usec)/1e6
}

func main() {
	rand.New(rand.NewSource(18)).Read(body)
	peer, role, url, queue := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	var do work
	if peer == "rabbitmq" {
		do = rabbitmq(role, url, queue)
	} else {
		do = jetStream(role, url, queue)
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) == 2 {
			count, err := strconv.Atoi(words[1])
			must(err)
			must(do(words[0], count))
		}
		fmt.Println(processor())
	}
}
