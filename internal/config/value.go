package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// codec reads and writes the text of a value of type T. parse refuses what the setting cannot take; its error says what
// it can take, so that it reads well after the key.
type codec[T any] struct {
	parse  func(text string) (T, error)
	show   func(T) string
	limits string // what is accepted, for the reference page
}

type integer interface {
	~int | ~int32 | ~int64 | ~uint16 | ~uint32 | ~uint64
}

func number[T integer](least, most int64) codec[T] {
	limits := fmt.Sprintf("%d to %d", least, most)
	return codec[T]{
		parse: func(text string) (T, error) {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < least || n > most {
				return 0, fmt.Errorf("must be a whole number, %s, not %q", limits, text)
			}
			return T(n), nil
		},
		show:   func(v T) string { return strconv.FormatInt(int64(v), 10) },
		limits: limits,
	}
}

// fraction is a number such as 0.4.
func fraction(least, most float64) codec[float64] {
	limits := fmt.Sprintf("%g to %g", least, most)
	return codec[float64]{
		parse: func(text string) (float64, error) {
			f, err := strconv.ParseFloat(text, 64)
			if err != nil || !(f >= least && f <= most) {
				return 0, fmt.Errorf("must be a number, %s, not %q", limits, text)
			}
			return f, nil
		},
		show:   func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) },
		limits: limits,
	}
}

// span is a time: a bare number counts in unit, a number with ms, s, m or h says its own unit.
func span(unit, least, most time.Duration) codec[time.Duration] {
	limits := spanText(least) + " to " + spanText(most)
	return codec[time.Duration]{
		parse: func(text string) (time.Duration, error) {
			d, err := parseSpan(text, unit)
			if err != nil {
				return 0, err
			}
			if d < least || d > most {
				return 0, fmt.Errorf("must be %s, not %q", limits, text)
			}
			return d, nil
		},
		show: func(d time.Duration) string {
			if d%unit == 0 {
				return strconv.FormatInt(int64(d/unit), 10)
			}
			return d.String()
		},
		limits: limits,
	}
}

func parseSpan(text string, unit time.Duration) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 || n > int64(100*365*24*time.Hour/unit) {
			return 0, fmt.Errorf("must be a time, not %q", text)
		}
		return time.Duration(n) * unit, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("must be a time, such as 60 (in %s) or 1m30s, not %q", unitName(unit), text)
	}
	return d, nil
}

func unitName(unit time.Duration) string {
	if unit == time.Millisecond {
		return "milliseconds"
	}
	return "seconds"
}

// spanText writes a time without the zero parts that time.Duration adds, 1m0s as 1m.
func spanText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// sizeUnits are RabbitMQ's: a decimal unit ends in B without an i before it.
var sizeUnits = map[string]Bytes{
	"": 1, "b": 1,
	"k": KiB, "ki": KiB, "kib": KiB, "kb": 1000,
	"m": MiB, "mi": MiB, "mib": MiB, "mb": 1000 * 1000,
	"g": GiB, "gi": GiB, "gib": GiB, "gb": 1000 * 1000 * 1000,
	"t": 1024 * GiB, "ti": 1024 * GiB, "tib": 1024 * GiB, "tb": 1000 * 1000 * 1000 * 1000,
}

func size(least, most Bytes) codec[Bytes] {
	limits := least.String() + " to " + most.String()
	return codec[Bytes]{
		parse: func(text string) (Bytes, error) {
			b, err := ParseBytes(text)
			if err != nil {
				return 0, err
			}
			if b < least || b > most {
				return 0, fmt.Errorf("must be %s, not %q", limits, text)
			}
			return b, nil
		},
		show:   Bytes.String,
		limits: limits,
	}
}

// ParseBytes reads a size: a whole number, and after it, where wanted, a unit such as kB, KiB, M, GB or GiB.
func ParseBytes(text string) (Bytes, error) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	n, err := strconv.ParseUint(text[:digits], 10, 63)
	unit, known := sizeUnits[strings.ToLower(strings.TrimSpace(text[digits:]))]
	if err != nil || !known || n > (1<<63)/uint64(unit) {
		return 0, fmt.Errorf("must be a size, such as 1048576, 512MB or 2GiB, not %q", text)
	}
	return Bytes(n) * unit, nil
}

// String gives the size in the largest binary unit that holds it without a rest.
func (b Bytes) String() string {
	for _, u := range []struct {
		size Bytes
		name string
	}{{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatUint(uint64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(b), 10)
}

func boolean() codec[bool] {
	return codec[bool]{
		parse: func(text string) (bool, error) {
			switch strings.ToLower(text) {
			case "true", "on":
				return true, nil
			case "false", "off":
				return false, nil
			}
			return false, fmt.Errorf("must be true or false, not %q", text)
		},
		show:   strconv.FormatBool,
		limits: "true or false",
	}
}

func oneOf(words ...string) codec[string] {
	limits := strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	return codec[string]{
		parse: func(text string) (string, error) {
			for _, word := range words {
				if strings.EqualFold(text, word) {
					return word, nil
				}
			}
			return "", fmt.Errorf("must be %s, not %q", limits, text)
		},
		show:   func(s string) string { return s },
		limits: limits,
	}
}

// words is any text; what says what it stands for.
func words(what string, empty bool) codec[string] {
	return codec[string]{
		parse: func(text string) (string, error) {
			if text == "" && !empty {
				return "", errors.New("must not be empty")
			}
			return text, nil
		},
		show:   func(s string) string { return s },
		limits: what,
	}
}

func pattern() codec[string] {
	return codec[string]{
		parse: func(text string) (string, error) {
			if _, err := regexp.Compile(text); err != nil {
				return "", fmt.Errorf("must be a regular expression: %v", err)
			}
			return text, nil
		},
		show:   func(s string) string { return s },
		limits: "a regular expression; empty matches nothing",
	}
}

// address is the IP of an interface; empty is every interface.
func address() codec[string] {
	return codec[string]{
		parse: func(text string) (string, error) {
			if text != "" && net.ParseIP(text) == nil {
				return "", fmt.Errorf("must be an IP address, not %q", text)
			}
			return text, nil
		},
		show:   func(s string) string { return s },
		limits: "an IP address; empty is every interface",
	}
}

// listener is a port, or an address and a port.
func listener() codec[string] {
	return codec[string]{
		parse:  ParseListener,
		show:   func(s string) string { return strings.TrimPrefix(s, ":") },
		limits: "port, or address:port",
	}
}

// ParseListener reads the address of a listener, a port or address:port, and gives it in the form that net.Listen takes.
// An IPv6 address may stand with or without brackets.
func ParseListener(text string) (string, error) {
	host, port := "", text
	if at := strings.LastIndexByte(text, ':'); at >= 0 {
		host, port = text[:at], text[at+1:]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || strings.ContainsAny(host, " \t[]") {
		return "", fmt.Errorf("must be a port or address:port, such as 5672 or 127.0.0.1:5672, not %q", text)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// nodeAddress is where a node is reached by others.
func nodeAddress(empty bool) codec[string] {
	limits := "host:port"
	if empty {
		limits = "host:port, or empty"
	}
	return codec[string]{
		parse: func(text string) (string, error) {
			if text == "" && empty {
				return "", nil
			}
			return ParseNodeAddress(text)
		},
		show:   func(s string) string { return s },
		limits: limits,
	}
}

// anAddress is where a node listens, or nothing.
func anAddress() codec[string] {
	return codec[string]{
		parse: func(text string) (string, error) {
			if text == "" {
				return "", nil
			}
			return ParseListener(text)
		},
		show:   func(s string) string { return s },
		limits: "port or address:port, or empty",
	}
}

// ParseNodeAddress reads the address of a node, host:port. Others dial it, so "every interface" does not do.
func ParseNodeAddress(text string) (string, error) {
	address, err := ParseListener(text)
	if err == nil {
		host, port, _ := net.SplitHostPort(address)
		if ip := net.ParseIP(host); host != "" && port != "0" && (ip == nil || !ip.IsUnspecified()) {
			return address, nil
		}
	}
	return "", fmt.Errorf("must be the host:port at which other nodes reach it, such as 10.0.0.1:25672, not %q", text)
}
