package routing

import (
	"fmt"
	"math"

	"holdfast/internal/wire"
)

// maxHashes is how many "#" a pattern may have. RabbitMQ refuses more.
const maxHashes = 2

// CheckKey returns what is wrong with a binding key for an exchange of this kind, "" if nothing is.
func CheckKey(kind Kind, key string) string {
	switch kind {
	case Topic:
	case ConsistentHash:
		_, problem := weightOf(key)
		return problem
	case LocalRandom:
		if key != "" {
			return fmt.Sprintf("Non empty binding '%s' key not permitted", key)
		}
		return ""
	default:
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

// CheckExchange returns what is wrong with the arguments of an exchange of this kind, "" if nothing is.
func CheckExchange(kind Kind, args wire.Table) (problem string) {
	switch kind {
	case ConsistentHash:
		header, byHeader := args.Get(argHashHeader)
		property, byProperty := args.Get(argHashProperty)
		for _, v := range []wire.Value{header, property} {
			if _, ok := v.Str(); !ok && !v.IsZero() {
				return "hash-header and hash-property must be strings, not " + v.TypeName()
			}
		}
		if byHeader && byProperty {
			return "hash-header and hash-property are mutually exclusive"
		}
		if name, _ := property.Str(); byProperty && hashProperties[name] == 0 {
			return "Unsupported property: " + name
		}
	case History:
		if v, ok := args.Get(argHistoryLength); ok {
			if n, isInt := v.Int(); !isInt || n < 1 {
				return fmt.Sprintf("Invalid argument %v, '%s' must be a positive integer", v, argHistoryLength)
			}
		}
	}
	return ""
}

const (
	argHistoryLength = "x-recent-history-length"
	historyLength    = 20
)

// HistoryLength returns how many messages an exchange that keeps the latest is to keep, by its arguments.
func HistoryLength(args wire.Table) int {
	if v, ok := args.Get(argHistoryLength); ok {
		if n, isInt := v.Int(); isInt && n > 0 {
			return int(min(n, math.MaxInt32))
		}
	}
	return historyLength
}
