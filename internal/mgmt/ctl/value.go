package ctl

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// text writes a value as rabbitmqctl's table does: names and numbers bare, lists in brackets, arguments as pairs.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return clean(v)
	case json.Number:
		return v.String()
	case []any:
		parts := make([]string, len(v))
		for i, element := range v {
			parts[i] = text(element)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		return pairs(v)
	}
	return fmt.Sprint(v)
}

// pairs writes arguments as [{"x-max-length",10},{"x-overflow","reject-publish"}], in the order of their names.
func pairs(m map[string]any) string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = fmt.Sprintf("{%q,%s}", key, quoted(m[key]))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// quoted is a value inside arguments, where text stands in quotes.
func quoted(v any) string {
	switch v := v.(type) {
	case nil:
		return "undefined"
	case string:
		return fmt.Sprintf("%q", v)
	case []any:
		parts := make([]string, len(v))
		for i, element := range v {
			parts[i] = quoted(element)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return text(v)
}

// clean keeps a name from breaking the table or the terminal: control characters are written as escapes.
func clean(s string) string {
	if strings.IndexFunc(s, control) < 0 {
		return s
	}
	var b strings.Builder
	for _, c := range s {
		if control(c) {
			fmt.Fprintf(&b, `\%03o`, c)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

func control(c rune) bool { return c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 }
