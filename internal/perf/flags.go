package perf

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/invariant"
)

// UsageError is a command line that makes no sense.
type UsageError struct{ text string }

// Error says what is wrong with it.
func (e *UsageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// flag is one option. Names of one letter and short names such as qpf may
// stand after one dash or two, as PerfTest's users write them.
type flag struct {
	names []string
	value string // what the help calls its value; "" = it takes none
	help  string
	set   func(string) error
}

// flagSet is the options of a scenario, in the order of the help.
type flagSet struct {
	flags  []*flag
	byName map[string]*flag
}

func (s *flagSet) add(names, value, help string, set func(string) error) {
	f := &flag{strings.Fields(names), value, help, set}
	if s.byName == nil {
		s.byName = map[string]*flag{}
	}
	for _, n := range f.names {
		if s.byName[n] != nil {
			invariant.Failf("two options are called %s", n)
		}
		s.byName[n] = f
	}
	s.flags = append(s.flags, f)
}

func (s *flagSet) text(names, value, help string, to *string) {
	s.add(names, value, help, func(v string) error { *to = v; return nil })
}

// list takes several values, separated by commas or by repeating the option.
func (s *flagSet) list(names, value, help string, to *[]string) {
	fresh := true // what is there now is the default
	s.add(names, value, help, func(v string) error {
		if fresh {
			*to, fresh = nil, false
		}
		*to = append(*to, strings.Split(v, ",")...)
		return nil
	})
}

func (s *flagSet) count(names, value, help string, to *int, least int) {
	s.add(names, value, help, func(v string) (err error) {
		*to, err = parseCount(v)
		if err == nil && *to < least {
			err = fmt.Errorf("must be %d or more", least)
		}
		return err
	})
}

// parseCount reads a whole number, with k or M for thousands and millions.
func parseCount(v string) (int, error) {
	unit := 1
	switch {
	case strings.HasSuffix(v, "k"):
		v, unit = v[:len(v)-1], 1000
	case strings.HasSuffix(v, "M"):
		v, unit = v[:len(v)-1], 1000_000
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", v)
	}
	return n * unit, nil
}

func (s *flagSet) counts(names, value, help string, to *[]int) {
	fresh := true
	s.add(names, value, help, func(v string) error {
		if fresh {
			*to, fresh = nil, false
		}
		for part := range strings.SplitSeq(v, ",") {
			n, err := parseCount(part)
			if err == nil && n < 1 {
				err = fmt.Errorf("must be 1 or more")
			}
			if err != nil {
				return err
			}
			*to = append(*to, n)
		}
		return nil
	})
}

func (s *flagSet) number(names, value, help string, to *float64) {
	s.add(names, value, help, func(v string) (err error) {
		*to, err = strconv.ParseFloat(v, 64)
		if err != nil || *to < 0 {
			return fmt.Errorf("%q is not a number", v)
		}
		return nil
	})
}

// seconds takes a number of seconds, or a duration such as 5m.
func (s *flagSet) seconds(names, value, help string, to *time.Duration) {
	s.add(names, value, help, func(v string) (err error) {
		n, err := strconv.ParseFloat(v, 64)
		if err == nil {
			*to = time.Duration(n * float64(time.Second))
		} else {
			*to, err = time.ParseDuration(v)
		}
		if err != nil || *to < 0 {
			return fmt.Errorf("%q is neither a number of seconds nor a duration", v)
		}
		return nil
	})
}

// truth takes true or false.
func (s *flagSet) truth(names, help string, to *bool) {
	s.add(names, "BOOL", help, func(v string) (err error) {
		*to, err = strconv.ParseBool(v)
		return err
	})
}

func (s *flagSet) toggle(names, help string, to *bool) {
	s.add(names, "", help, func(v string) (err error) {
		*to, err = strconv.ParseBool(v)
		return err
	})
}

// parse sets what the arguments say.
func (s *flagSet) parse(args []string) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if len(arg) < 2 || arg[0] != '-' {
			return usagef("%q is not an option", arg)
		}
		name, value, given := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		f := s.byName[name]
		if f == nil && len(name) > 1 && arg[1] != '-' { // -x4
			if g := s.byName[name[:1]]; g != nil && g.value != "" && strings.Trim(name[1:], "0123456789.kM") == "" {
				f, value, given = g, name[1:], true
			}
		}
		switch {
		case f == nil && slices.Contains(perfTestOnly, name):
			return usagef("%s is an option of PerfTest that is not supported here; --help after the scenario lists those that are", arg)
		case f == nil:
			return usagef("unknown option %s; --help after the scenario lists those there are", arg)
		case given:
		case f.value == "":
			value = "true"
		case len(args) == 0:
			return usagef("%s needs a value: %s", arg, f.value)
		default:
			value, args = args[0], args[1:]
		}
		if err := f.set(value); err != nil {
			return usagef("%s: %v", f.form(), err)
		}
	}
	return nil
}

// shortNames are written with one dash in the help, as PerfTest does.
var shortNames = []string{"ad", "ct", "mp", "qa", "qp", "qpf", "qpt"}

func (f *flag) form() string {
	forms := make([]string, len(f.names))
	for i, n := range f.names {
		forms[i] = "--" + n
		if len(n) == 1 || slices.Contains(shortNames, n) {
			forms[i] = "-" + n
		}
	}
	return strings.Join(forms, ", ")
}

func (s *flagSet) help(w io.Writer) {
	for _, f := range s.flags {
		left := f.form()
		if f.value != "" {
			left += " " + f.value
		}
		if len(left) > 38 {
			fmt.Fprintf(w, "  %s\n  %-38s  %s\n", left, "", f.help)
		} else {
			fmt.Fprintf(w, "  %-38s  %s\n", left, f.help)
		}
	}
}

// perfTestOnly are options of PerfTest that would mean something and are not
// here, so that the answer can say so.
var perfTestOnly = strings.Fields(`
	b heartbeat K random-routing-key sb skip-binding-queues S slow-start X producer-channel-count Y consumer-channel-count m ptxsize
	n ctxsize Q global-qos B body T body-content-type o output-file ms use-millis L consumer-latency udsc
	use-default-ssl-context se sasl-external rkcs routing-key-cache-size E exclusive P publishing-interval vr variable-rate
	vs variable-size vl variable-latency po polling pi polling-interval na nack rq requeue qq quorum-queue sq stream-queue
	leader-locator env environment-variables mh metrics-help`)
