package auth

import (
	"bytes"

	"holdfast/internal/wire"
)

// The mechanisms by their SASL names.
const (
	plain    = "PLAIN"
	amqplain = "AMQPLAIN"
)

// parsePlain reads a PLAIN response: a zero byte, the user, a zero byte, the password. There is no authorization identity
// before the first zero byte, and nothing after the password. problem is "" if all is well.
func parsePlain(response []byte) (user, password, problem string) {
	rest, ok := bytes.CutPrefix(response, []byte{0})
	if !ok {
		return "", "", "it does not start with a zero byte"
	}
	u, p, ok := bytes.Cut(rest, []byte{0})
	if !ok {
		return "", "", "no zero byte between user and password"
	}
	if bytes.IndexByte(p, 0) >= 0 {
		return "", "", "a zero byte in the password"
	}
	return string(u), string(p), ""
}

// parseAMQPlain reads an AMQPLAIN response: a field table without its length, with the fields LOGIN and PASSWORD.
func parseAMQPlain(response []byte) (user, password, problem string) {
	table, err := wire.ParseTable(response)
	if err != nil {
		return "", "", "it is no table: " + err.Error()
	}
	u, ok := table.Get("LOGIN")
	p, ok2 := table.Get("PASSWORD")
	if !ok || !ok2 {
		return "", "", "the LOGIN or PASSWORD field is missing"
	}
	ub, ok := u.Bytes()
	pb, ok2 := p.Bytes()
	if !ok || !ok2 {
		return "", "", "the LOGIN or PASSWORD field is no string"
	}
	return string(ub), string(pb), ""
}
