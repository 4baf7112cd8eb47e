package catalog

import (
	"encoding/base64"
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// CleanName returns the name of a queue or an exchange as it is kept: like RabbitMQ without line feeds and carriage
// returns.
func CleanName(name string) string {
	if !strings.ContainsAny(name, "\r\n") {
		return name
	}
	return strings.NewReplacer("\r", "", "\n", "").Replace(name)
}

// ServerName returns a name for a queue that was declared without one: "amq.gen-" or the prefix the arguments ask for
// (x-name-prefix), and 128 random bits of the caller's.
func ServerName(vhost string, args wire.Table, random [16]byte) (string, *amqperr.Error) {
	prefix := "amq.gen"
	if v, ok := args.Get(argNamePrefix); ok {
		if s, ok := v.Str(); ok && s != "" {
			if len(s) > 64 {
				return "", amqperr.InvalidArg(amqperr.Queue, vhost, "", argNamePrefix, "the prefix is longer than 64 bytes")
			}
			prefix = CleanName(s)
		}
	}
	return prefix + "-" + base64.RawURLEncoding.EncodeToString(random[:]), nil
}

// argNamePrefix is an argument of the request, not of the queue: it is not kept.
const argNamePrefix = "x-name-prefix"

// without returns args without a field.
func without(args wire.Table, name string) wire.Table {
	if _, ok := args.Get(name); !ok {
		return args
	}
	var rest wire.Table
	for k, v := range args.All() {
		if k != name {
			rest = rest.AppendValue(k, v)
		}
	}
	return rest
}
