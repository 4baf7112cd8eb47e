package routing

import (
	"fmt"

	"holdfast/internal/wire"
)

// maxHashes is how many "#" a pattern may have. RabbitMQ refuses more.
const maxHashes = 2

// CheckKey returns what is wrong with a binding key for an exchange of this kind, "" if nothing is.
func CheckKey(kind Kind, key string) string {
	if kind != Topic {
		return ""
	}
	hashes := 0
	for w := pattern(key); w.more; {
		var word string
		if word, w = w.next(); word == "#" {
			hashes++
		}
	}
	if hashes > maxHashes {
		return fmt.Sprintf("it has %d '#' wildcards, at most %d are allowed", hashes, maxHashes)
	}
	return ""
}

// CheckArgs returns what is wrong with a binding's arguments for an exchange of this kind: the argument and the problem,
// both "" if nothing is.
func CheckArgs(kind Kind, args wire.Table) (arg, problem string) {
	if kind != Headers {
		return "", ""
	}
	v, ok := args.Get("x-match")
	if !ok {
		return "", ""
	}
	mode, ok := v.Str()
	if !ok {
		return "x-match", fmt.Sprintf("invalid field type %s, expected longstr", v.TypeName())
	}
	switch mode {
	case "all", "any", "all-with-x", "any-with-x":
		return "", ""
	}
	return "x-match", fmt.Sprintf("invalid value '%s', expected all, any, all-with-x, or any-with-x", mode)
}
