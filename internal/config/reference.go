package config

//go:generate go test -run TestReferencePage -update

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Write prints the settings in force in the form of a configuration file. A line that differs from the default says so
// in a comment; a password that was set is masked.
func (s *Settings) Write(w io.Writer) error {
	standard := Default()
	group := ""
	for i := range rows {
		r := &rows[i]
		if r.group != group {
			if _, err := fmt.Fprintf(w, "%s# %s\n", blankAfter(group), r.group); err != nil {
				return err
			}
			group = r.group
		}
		mine, theirs := r.show(s), r.show(standard)
		for _, p := range mine {
			line := p.key + " = " + quote(p.value)
			if !slices.Equal(mine, theirs) {
				if r.secret {
					line = "# " + p.key + " is set and not shown"
				} else {
					line += "   # default: " + defaultText(theirs)
				}
			}
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func blankAfter(group string) string {
	if group == "" {
		return ""
	}
	return "\n"
}

// quote protects a value that the reader of the file would cut.
func quote(value string) string {
	if strings.ContainsAny(value, "#") || value != strings.TrimSpace(value) || strings.HasPrefix(value, "'") {
		return "'" + value + "'"
	}
	return value
}

// defaultText gives the default of a row in a few words.
func defaultText(pairs []pair) string {
	values := make([]string, len(pairs))
	for i, p := range pairs {
		values[i] = p.value
		if p.value == "true" && len(pairs) == 1 && strings.Contains(p.key, "users.") || p.value == "true" && strings.Contains(p.key, "tags.") {
			values[i] = p.key[strings.LastIndexByte(p.key, '.')+1:]
		}
	}
	if text := strings.Join(values, ", "); text != "" {
		return text
	}
	return "empty"
}

// Reference is the page docs/configuration.md, made from the table.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	standard := Default()
	group := ""
	for i := range rows {
		r := &rows[i]
		if r.group != group {
			group = r.group
			fmt.Fprintf(&b, "\n## %s\n\n%s| key | default | accepts | what it does |\n|---|---|---|---|\n", group, referenceIntro[group])
		}
		accepts := r.limits
		if r.unit != "" {
			accepts += "; " + r.unit
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.key, code(defaultText(r.show(standard))), cell(accepts), cell(r.about))
	}
	b.WriteString(referenceKnown)
	for _, k := range known {
		fmt.Fprintf(&b, "| `%s` | %s |\n", k.key, cell(k.reason))
	}
	return b.String()
}

func code(text string) string {
	if text == "empty" || text == none {
		return text
	}
	return "`" + text + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

const referenceHead = `# Configuration

<!-- Made from the table in internal/config by "go generate ./internal/config"; edit it there. -->

A node starts without a configuration file. One is named with ` + "`holdfast serve --config FILE`" + `; flags, ` + "`--data`" + `
and ` + "`--listen`" + ` for two, win over it. ` + "`holdfast config --config FILE`" + ` checks a file and prints every setting that would be in force.

The file has RabbitMQ's form: one ` + "`key = value`" + ` a line, ` + "`#`" + ` begins a comment. A value with a ` + "`#`" + ` in it stands in single
quotes. Where a key means the same in RabbitMQ, it has the same name here. Everything wrong with a file is reported at
once, with file and line, and then the node does not start:

    holdfast.conf:3: unknown key "hearbeat"; did you mean "heartbeat"?
    holdfast.conf:7: frame_max must be a whole number, 4096 to 1048576, not "64"

A time is a bare number in the unit named below, or a number with its own unit: ` + "`500ms`, `90s`, `1m30s`" + `. A size is a number
of bytes, or a number with a unit: ` + "`64MiB`" + ` and ` + "`64M`" + ` are 64 × 1024 × 1024 bytes, ` + "`64MB`" + ` is 64,000,000.

A key that ends in ` + "`$name`" + ` may be given several times with different names; together they replace the default:

    listeners.tcp.1 = 127.0.0.1:5672
    listeners.tcp.2 = ::1:5672
`

// referenceIntro is what stands before the table of a group.
var referenceIntro = map[string]string{groupTLS: `A listener for TLS needs a certificate and its key:

    listeners.ssl.1 = 5671
    ssl_options.certfile = /etc/holdfast/cert.pem
    ssl_options.keyfile = /etc/holdfast/key.pem

The files are looked at every ten seconds, and connections that come after a change get the new certificate. While the
files cannot be used (half written, not fitting together), the old one stays, and the log says why. To try it out with a
certificate of one's own:

    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 30 \
      -subj /CN=localhost -addext subjectAltName=DNS:localhost

`}

const referenceKnown = `
## Keys of RabbitMQ that have no effect

A file written for RabbitMQ may hold these. Each is reported as a warning when the node starts, and otherwise ignored. A
` + "`*`" + ` stands for the rest of a key.

| key | why |
|---|---|
`
