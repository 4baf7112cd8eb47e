package queue

import (
	"strconv"
	"strings"
)

// parseRare parses a word of a command that has to do with settings.
func parseRare(c *Command, w string) bool {
	name, value, _ := strings.Cut(w, "=")
	n, err := strconv.ParseUint(value, 10, 64)
	if name == "heard" {
		c.Heard = n
		return err == nil
	}
	return c.Set != nil && parseSetting(c.Set, name, value)
}

func parseSetting(s *Settings, name, value string) bool {
	words := map[string]func(){
		"overflow=drop-head":  func() { s.Overflow = OverflowDropHead },
		"overflow=reject":     func() { s.Overflow = OverflowReject },
		"overflow=reject-dlx": func() { s.Overflow = OverflowRejectDLX },
	}
	if f := words[name+"="+value]; f != nil {
		f()
		return true
	}
	n, err := strconv.ParseUint(value, 10, 64)
	switch name {
	case "max-length":
		s.MaxLength = Most(n)
	default:
		return false
	}
	return err == nil
}
