package auth

import (
	"regexp"
	"sync"
)

// Pattern is a regular expression of a permission, compiled. It is immutable.
//
// An empty expression matches the empty name only, that is, nothing there is; any other matches a name that contains a
// match, as in RabbitMQ. The syntax is Go's, which lacks look-around and back references: a pattern that cannot be
// compiled matches nothing.
type Pattern struct {
	all  bool
	re   *regexp.Regexp // nil: nothing but, for the empty expression, the empty name
	expr string
}

// Match reports whether the pattern covers a name.
func (p *Pattern) Match(name string) bool {
	if p.all {
		return true
	}
	if p.re == nil {
		return p.expr == "" && name == ""
	}
	return p.re.MatchString(name)
}

// CheckPattern returns what is wrong with a permission's expression.
func CheckPattern(expr string) error {
	_, err := regexp.Compile(expr)
	return err
}

// patterns keeps what has been compiled: connections of one user, and mostly of all users, share a few patterns.
var patterns = struct {
	sync.RWMutex
	m map[string]*Pattern
}{m: make(map[string]*Pattern)}

// maxPatterns bounds what is kept; when it is reached, all is forgotten and compiled again as needed.
const maxPatterns = 4096

// CompilePattern returns the pattern of an expression.
func CompilePattern(expr string) *Pattern {
	patterns.RLock()
	p := patterns.m[expr]
	patterns.RUnlock()
	if p != nil {
		return p
	}
	p = &Pattern{all: expr == ".*" || expr == "^.*$", expr: expr}
	if !p.all && expr != "" {
		p.re, _ = regexp.Compile(expr)
	}
	patterns.Lock()
	defer patterns.Unlock()
	if len(patterns.m) >= maxPatterns {
		clear(patterns.m)
	}
	patterns.m[expr] = p
	return p
}
