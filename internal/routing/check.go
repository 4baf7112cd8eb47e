package routing

import (
	"fmt"
	"math"
	"strconv"

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
	case Once:
		if n, ok := number(args, argCacheSize); !ok || n < 1 || n > mostCached {
			return fmt.Sprintf("Missing or invalid argument, '%s' must be an integer from 1 to %d", argCacheSize, mostCached)
		}
		if _, given := args.Get(argCacheTTL); given {
			if n, ok := number(args, argCacheTTL); !ok || n < 1 || n > mostPeriod {
				return fmt.Sprintf("Invalid argument, '%s' must be an integer greater than 0, of milliseconds of at most ten years", argCacheTTL)
			}
		}
		if v, given := args.Get(argCachePersistence); given {
			if s, _ := v.Str(); s != "disk" && s != "memory" {
				return fmt.Sprintf("Invalid argument, '%s' must be either 'disk' or 'memory'", argCachePersistence)
			}
		}
	}
	return ""
}

const (
	argCacheSize        = "x-cache-size"
	argCacheTTL         = "x-cache-ttl"
	argCachePersistence = "x-cache-persistence" // of no effect

	// mostCached is how many keys of an exchange a queue may be asked to remember. Each takes some 140 bytes of its memory.
	mostCached = 1_000_000
	mostPeriod = 315_360_000_000 // ms: ten years
)

// number reads an argument that is an integer, or a text that is one.
func number(args wire.Table, name string) (n int64, ok bool) {
	v, _ := args.Get(name)
	if text, isText := v.Str(); isText {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	return v.Int()
}

// Cached returns how many keys of an exchange of kind Once a queue is to remember, and for how many milliseconds, by the exchange's
// arguments; 0: as long as there is room.
func Cached(args wire.Table) (keys, ms uint64) {
	n, _ := number(args, argCacheSize)
	ttl, _ := number(args, argCacheTTL)
	return uint64(n), uint64(ttl)
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
