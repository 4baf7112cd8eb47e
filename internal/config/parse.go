package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Load reads a configuration file on top of the defaults. The warnings are for the log; the error, a Problems, names
// everything that is wrong in the file.
func Load(path string) (*Settings, Problems, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration file: %w", err)
	}
	s := Default()
	warnings, err := Parse(path, string(text), s)
	return s, warnings, err
}

// Parse reads the text of a configuration file into s. name is what problems call the file.
func Parse(name, text string, s *Settings) (warnings Problems, err error) {
	p := parser{file: name, settings: s, lines: map[string]int{}}
	for i, line := range strings.Split(text, "\n") {
		p.line(i+1, strings.TrimSuffix(line, "\r"))
	}
	for _, c := range s.conflicts() {
		p.wrong(p.lineOf(c.key), c.text)
	}
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return p.warnings, p.problems.orNil()
}

// parser is one reading of one file.
type parser struct {
	file     string
	settings *Settings
	lines    map[string]int // keys seen, and the stems of families; where first
	warnings Problems
	problems Problems
}

func (p *parser) wrong(line int, text string) {
	p.problems = append(p.problems, Problem{p.file, line, text})
}

func (p *parser) warn(line int, text string) {
	p.warnings = append(p.warnings, Problem{p.file, line, text})
}

// lineOf is where a key, or any member of a family, was set; 0 if it was not.
func (p *parser) lineOf(key string) int { return p.lines[key] }

// line reads one line: nothing, a comment, or a setting.
func (p *parser) line(n int, text string) {
	text = strings.TrimSpace(text)
	if text == "" || text[0] == '#' {
		return
	}
	key, value, err := split(text)
	if err != nil {
		p.wrong(n, err.Error())
		return
	}
	if cutInWord(text) {
		p.warn(n, key+": what stands after # is a comment; a value with a # in it needs single quotes")
	}
	r, name := find(key)
	switch {
	case r != nil:
		p.apply(n, r, key, unescape(name), value)
	case p.emptied(n, key, value):
	default:
		if reason, ok := understood(key); ok {
			p.warn(n, fmt.Sprintf("%s is not used: %s", key, reason))
			return
		}
		p.wrong(n, unknown(key).Error())
	}
}

// apply gives the value to its row. The first member of a family replaces the default list.
func (p *parser) apply(n int, r *row, key, name, value string) {
	if first, again := p.lines[key]; again {
		p.warn(n, fmt.Sprintf("%s replaces the value of line %d", key, first))
		if r.family() {
			p.wrong(n, fmt.Sprintf("%s is there twice, first in line %d", key, first))
			return
		}
	}
	if _, begun := p.lines[r.stem()]; r.family() && !begun {
		r.reset(p.settings)
		p.lines[r.stem()] = n
	}
	p.lines[key] = n
	if err := r.set(p.settings, name, value); err != nil {
		p.wrong(n, fmt.Sprintf("%s %v", key, err))
	}
}

// emptied handles the stem of a family: listeners.tcp = none.
func (p *parser) emptied(n int, key, value string) bool {
	for i := range rows {
		r := &rows[i]
		if !r.family() || r.stem() != key {
			continue
		}
		if value != none {
			p.wrong(n, fmt.Sprintf("%s must be none, or have a name: %s.1 = ...", key, key))
			return true
		}
		r.reset(p.settings)
		p.lines[key] = n
		return true
	}
	return false
}

// split takes a line apart. A # begins a comment, also after a value; single quotes around the value protect it.
func split(text string) (key, value string, err error) {
	key, rest, found := strings.Cut(text, "=")
	key, rest = strings.TrimSpace(key), strings.TrimSpace(rest)
	if !found {
		if strings.HasPrefix(text, "include ") {
			return "", "", errors.New("include is not supported: put all settings into one file")
		}
		return "", "", fmt.Errorf("must be key = value, not %q", clip(text))
	}
	if key == "" || strings.ContainsAny(key, " \t#'\"") {
		return "", "", fmt.Errorf("%q cannot be a key", clip(key))
	}
	if strings.HasPrefix(rest, "'") {
		value, after, closed := strings.Cut(rest[1:], "'")
		if !closed {
			return "", "", fmt.Errorf("%s: the quote is not closed", key)
		}
		if after = strings.TrimSpace(after); after != "" && after[0] != '#' {
			return "", "", fmt.Errorf("%s: %q stands after the closing quote", key, clip(after))
		}
		return key, value, nil
	}
	value, _, _ = strings.Cut(rest, "#")
	return key, strings.TrimSpace(value), nil
}

// cutInWord says whether a comment begins right behind a letter of the value, as it does in a password that was not quoted.
func cutInWord(text string) bool {
	_, rest, _ := strings.Cut(text, "=")
	rest = strings.TrimSpace(rest)
	at := strings.IndexByte(rest, '#')
	return at > 0 && rest[0] != '\'' && rest[at-1] != ' ' && rest[at-1] != '\t'
}

// unescape takes the backslashes out of a name; they protect a dot inside it.
func unescape(name string) string { return strings.ReplaceAll(name, `\.`, ".") }

// clip keeps a quotation of the file short.
func clip(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
