package ctl

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func queueCommands() []*command {
	return []*command{
		declareQueue(), purgeQueue(), deleteQueue(), pauseQueue(), resumeQueue(), redrive(), publish(), get(), explain(), discard(),
	}
}

func declareQueue() *command {
	var transient, autoDelete bool
	var arguments, kind string
	return &command{
		use: "declare_queue queue [flags]", short: "Declares a queue; one that exists with the same properties stays as it is", least: 1, most: 1,
		flags: func(c *cobra.Command) {
			c.Flags().BoolVar(&transient, "transient", false, "the queue goes when the node stops")
			c.Flags().BoolVar(&autoDelete, "auto-delete", false, "the queue goes with its last consumer")
			c.Flags().StringVar(&arguments, "arguments", "{}", "arguments, as a JSON object")
			c.Flags().StringVar(&kind, "type", "", "type of the queue, classic or quorum: the argument x-queue-type")
		},
		run: func(r *run, args []string) error {
			with, err := typed(arguments, kind)
			if err != nil {
				return err
			}
			r.say("Declaring queue '%s' in vhost '%s' ...", args[0], r.vhost)
			return r.declare(args[0], !transient, autoDelete, with)
		},
	}
}

// typed adds a type to the arguments of a queue, "" as they are.
func typed(arguments, kind string) (json.RawMessage, error) {
	if !json.Valid([]byte(arguments)) {
		return nil, usagef("--arguments is not JSON")
	}
	if kind == "" {
		return json.RawMessage(arguments), nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(arguments), &all); err != nil {
		return nil, usagef("--arguments is not a JSON object")
	}
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	name, err := json.Marshal(kind)
	if err != nil {
		return nil, usagef("--type: %v", err)
	}
	if was, has := all[typeArgument]; has && string(was) != string(name) {
		return nil, usagef("--type %s, and the argument %s is %s", kind, typeArgument, was)
	}
	all[typeArgument] = name
	with, err := json.Marshal(all)
	if err != nil {
		return nil, usagef("--arguments: %v", err)
	}
	return with, nil
}

const typeArgument = "x-queue-type"

func (r *run) declare(queue string, durable, autoDelete bool, arguments json.RawMessage) error {
	return r.call("PUT", path("queues", r.vhost, queue),
		map[string]any{"durable": durable, "auto_delete": autoDelete, "arguments": arguments})
}

func purgeQueue() *command {
	return &command{
		use: "purge_queue queue", short: "Removes all ready and delayed messages of a queue", least: 1, most: 1,
		run: func(r *run, args []string) error {
			r.say("Purging queue '%s' in vhost '%s' ...", args[0], r.vhost)
			var answer struct{ Messages json.Number }
			err := r.client.do(r.ctx, "DELETE", path("queues", r.vhost, args[0], "contents"), nil, &answer)
			if err != nil {
				return exitCode(err, ExitUnavailable)
			}
			return r.result(map[string]any{"messages": answer.Messages}, "Removed %s messages", answer.Messages)
		},
	}
}

func deleteQueue() *command {
	var ifEmpty, ifUnused bool
	return &command{
		use: "delete_queue queue [flags]", short: "Deletes a queue", least: 1, most: 1,
		flags: func(c *cobra.Command) {
			c.Flags().BoolVarP(&ifEmpty, "if-empty", "e", false, "only if it has no ready or delayed messages, and no dead letters that have not arrived")
			c.Flags().BoolVarP(&ifUnused, "if-unused", "u", false, "only if it has no consumers")
		},
		run: func(r *run, args []string) error {
			if args[0] == "" {
				return failf(ExitData, "Error: queue name cannot be an empty string")
			}
			r.say("Deleting queue '%s' on vhost '%s' ...", args[0], r.vhost)
			var answer struct{ Messages json.Number }
			err := r.client.do(r.ctx, "DELETE", path("queues", r.vhost, args[0])+
				fmt.Sprintf("?if-empty=%t&if-unused=%t", ifEmpty, ifUnused), nil, &answer)
			var no *refused
			if errors.As(err, &no) && (no.refusal.Error == "not_found" || no.refusal.Error == "refused") {
				return failf(ExitUsage, "Error:\n%s", no.Reason) // rabbitmqctl's code for all three
			}
			if err != nil {
				return err
			}
			return r.result(map[string]any{"messages": answer.Messages}, "Queue was successfully deleted with %s ready messages", answer.Messages)
		},
	}
}

func pauseQueue() *command {
	return &command{
		use: "pause_queue queue", short: "Has nothing of a queue delivered until resume_queue", least: 1, most: 1,
		long: "Has nothing of a queue delivered any more, neither to consumers nor to basic.get, until resume_queue. Consumers stay, publishes are taken, and what is " +
			"delivered already can be settled. It holds over restarts.",
		run: func(r *run, args []string) error {
			r.say("Pausing queue '%s' in vhost '%s' ...", args[0], r.vhost)
			return r.call("PUT", path("queues", r.vhost, args[0], "pause"), nil)
		},
	}
}

func resumeQueue() *command {
	return &command{
		use: "resume_queue queue", short: "Has a queue go on that was paused", least: 1, most: 1,
		run: func(r *run, args []string) error {
			r.say("Resuming queue '%s' in vhost '%s' ...", args[0], r.vhost)
			return r.call("DELETE", path("queues", r.vhost, args[0], "pause"), nil)
		},
	}
}

func publish() *command {
	var exchange, contentType, properties, kind string
	var transient, declare bool
	var headers []string
	return &command{
		use: "publish routing-key [body] [flags]", short: "Publishes a message; without a body in the arguments it is read from standard input",
		long:  "Publishes one message and waits until it is safe in every queue it goes to. Without --exchange the routing key is the name of a queue.",
		least: 1, most: 2,
		flags: func(c *cobra.Command) {
			c.Flags().StringVar(&exchange, "exchange", "", "exchange to publish to")
			c.Flags().BoolVar(&declare, "declare", false, "declare the queue first, should it not exist")
			c.Flags().StringVar(&kind, "type", "", "with --declare: type of the queue, classic or quorum")
			c.Flags().BoolVar(&transient, "transient", false, "the message need not survive a restart")
			c.Flags().StringVar(&contentType, "content-type", "", "content type of the body")
			c.Flags().StringArrayVar(&headers, "header", nil, "a header, name=value; may be given several times")
			c.Flags().StringVar(&properties, "properties", "{}", "properties by AMQP's names, as a JSON object")
		},
		run: func(r *run, args []string) error {
			all := map[string]any{"delivery_mode": 2}
			if transient {
				all["delivery_mode"] = 1
			}
			numbers := json.NewDecoder(strings.NewReader(properties))
			numbers.UseNumber() // a large whole number keeps its last digits
			if err := numbers.Decode(&all); err != nil {
				return usagef("--properties is not a JSON object")
			}
			if contentType != "" {
				all["content_type"] = contentType
			}
			if err := addHeaders(all, headers); err != nil {
				return err
			}
			var body []byte
			if len(args) > 1 {
				body = []byte(args[1])
			} else {
				var err error
				if body, err = io.ReadAll(r.In); err != nil {
					return failf(ExitData, "Error: the body: %v", err)
				}
			}
			if declare {
				if exchange != "" {
					return usagef("--declare goes with the default exchange, whose routing key is the name of a queue")
				}
				with, err := typed("{}", kind)
				if err == nil {
					err = r.declare(args[0], true, false, with)
				}
				if err != nil {
					return err
				}
			} else if kind != "" {
				return usagef("--type goes with --declare")
			}
			var answer struct{ Queues int }
			err := r.client.do(r.ctx, "POST", path("exchanges", r.vhost, exchangeSegment(exchange), "publish"), map[string]any{
				"routing_key": args[0], "properties": all,
				"payload": base64.StdEncoding.EncodeToString(body), "payload_encoding": "base64",
			}, &answer)
			if err != nil {
				return err
			}
			if answer.Queues == 0 {
				return failf(ExitData, "Error: the message was routed to no queue: there is none with a matching binding")
			}
			return r.result(map[string]any{"queues": answer.Queues}, "Published to %d queue(s)", answer.Queues)
		},
	}
}

func addHeaders(properties map[string]any, headers []string) error {
	if len(headers) == 0 {
		return nil
	}
	table, _ := properties["headers"].(map[string]any)
	if table == nil {
		table = map[string]any{}
	}
	for _, header := range headers {
		name, value, found := strings.Cut(header, "=")
		if !found || name == "" {
			return usagef("--header must be name=value, not %q", header)
		}
		table[name] = value
	}
	properties["headers"] = table
	return nil
}

// exchangeSegment stands for the default exchange, whose name is empty, in a path.
func exchangeSegment(name string) string {
	if name == "" {
		return "amq.default"
	}
	return name
}

// gotMessage is a message that get fetched.
type gotMessage struct {
	Exchange    string         `json:"exchange"`
	RoutingKey  string         `json:"routing_key"`
	Redelivered bool           `json:"redelivered"`
	Remaining   json.Number    `json:"message_count"`
	Properties  map[string]any `json:"properties"`
	Payload     []byte         `json:"payload"`
}

func get() *command {
	var count int
	var ack bool
	return &command{
		use: "get queue [flags]", short: "Shows the first messages of a queue; they stay in it unless --ack is given", least: 1, most: 1,
		flags: func(c *cobra.Command) {
			c.Flags().IntVar(&count, "count", 1, "most messages to show")
			c.Flags().BoolVar(&ack, "ack", false, "remove the messages from the queue")
		},
		run: func(r *run, args []string) error {
			if count < 1 {
				return usagef("--count must be at least 1")
			}
			var messages []gotMessage
			err := r.client.do(r.ctx, "POST", path("queues", r.vhost, args[0], "get"), map[string]any{"count": count, "requeue": !ack}, &messages)
			if err != nil {
				return err
			}
			t := table{columns: words("routing_key exchange message_count payload payload_bytes payload_encoding redelivered properties")}
			for _, m := range messages {
				payload, encoding := string(m.Payload), "string"
				if !utf8.Valid(m.Payload) {
					payload, encoding = base64.StdEncoding.EncodeToString(m.Payload), "base64"
				}
				t.rows = append(t.rows, []any{m.RoutingKey, m.Exchange, m.Remaining, payload, len(m.Payload), encoding, m.Redelivered, m.Properties})
			}
			return r.print(t)
		},
	}
}

func explain() *command {
	return &command{
		use: "explain queue", short: "Says how a queue stands and what its ready messages wait for", least: 1, most: 1,
		run: func(r *run, args []string) error {
			var raw json.RawMessage
			if err := r.client.do(r.ctx, "GET", path("queues", r.vhost, args[0], "explain"), nil, &raw); err != nil {
				return err
			}
			if r.formatter == "json" {
				return writeJSON(r.Out, raw)
			}
			var said struct{ Lines []string }
			if err := json.Unmarshal(raw, &said); err != nil {
				return failf(ExitSoftware, "Error: %v", err)
			}
			for _, line := range said.Lines {
				fmt.Fprintln(r.Out, clean(line))
			}
			return nil
		},
	}
}

func discard() *command {
	var group uint64
	return &command{
		use: "discard [queue] [flags]", short: "Gives up the data of a damaged queue, or of a group that no queue claims",
		long: "Gives up the messages of a queue whose data in the log is damaged: what is left of them is freed and the queue is deleted. " +
			"`holdfast dump --salvage` copies out what is whole, and has to be run first, on the stopped node. With --group it gives up a group of the log that no queue claims; status lists them.",
		most: 1,
		flags: func(c *cobra.Command) {
			c.Flags().Uint64Var(&group, "group", 0, "number of the group, instead of a queue")
		},
		run: func(r *run, args []string) error {
			if (len(args) == 1) == (group != 0) {
				return usagef("name either a queue or a --group")
			}
			if group != 0 {
				r.say("Discarding group %d ...", group)
				return r.call("DELETE", path("groups", fmt.Sprint(group)), nil)
			}
			r.say("Discarding queue '%s' in vhost '%s' ...", args[0], r.vhost)
			return r.call("DELETE", path("queues", r.vhost, args[0], "data"), nil)
		},
	}
}
