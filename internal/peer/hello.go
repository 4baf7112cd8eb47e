package peer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Every connection begins with a greeting, which the side that dialled opens:
//
//	dials                                  accepts
//	  hello     ------------------------>            who I am, what for
//	            <------------------------  challenge   or a refusal
//	  proof     ------------------------>            that I know the secret
//	            <------------------------  verdict     with its hello and proof
//
// hello, of which the first line is the same in every version:
//
//	 0          8       10      12     16
//	+----------+-------+-------+------+
//	| magic    | least | most  | size |              versions; of what follows, at most 8 KiB
//	+----+-----+-----+-+-------+------+----+----------+-------------+----------+
//	| purpose  | flags | cluster (16)    | node     | incarnation | instance |
//	+----------+-------+---------+-------+----------+-------------+----------+
//	| to (8)   | nonce (32)      | name, addr, info: u16 and bytes each       |
//	+----------+-----------------+----------------------------------------------+
//	| levels: least, most, cluster's (2 each)        |    one that ends before said nothing
//	+------------------------------------------------+
//	| line: u16 and bytes                            |    the same
//	+------------------------------------------------+
//
// What a later version appends is left unread. Flag 1: I have a secret. to is the
// node that is expected, 0 if anybody.
//
// challenge:  magic (8), least, most, refusal (1), flags (1), nonce (32)
// proof:      32 bytes, zero without a secret
// verdict:    refusal (1), 1 if what follows is there (1), hello, proof
//
// A proof is the HMAC-SHA256, under the secret, of the role's name and of every
// byte that was sent before it, both nonces among them. As each role has its own
// name, a proof sent back proves nothing. A node tells who it is only to those
// that have proved themselves.
//
// All numbers are little-endian.
const (
	magic         = "hfpeer\r\n"
	helloHead     = 16
	maxHello      = 8 << 10
	challengeSize = 8 + 4 + 2 + 32
	proofSize     = sha256.Size
)

const flagSecret = 1

// purpose is what a connection is for: a Lane, or one of these.
type purpose uint8

const (
	purposeProbe purpose = 16
	purposeCall  purpose = 17
)

func (p purpose) isLane() bool { return p < Lanes }

// refusal is a reason why two nodes do not talk, as it travels.
type refusal uint8

// refusals is the order of the codes; it is part of the protocol.
var refusals = []error{
	nil, ErrVersion, ErrSecret, ErrCluster, ErrSelf, ErrSameNode, ErrStranger, ErrEarlier, ErrOtherNode, ErrBusy,
	ErrLevel, ErrLine,
}

func (r refusal) err() error {
	if int(r) < len(refusals) {
		return refusals[r]
	}
	return fmt.Errorf("the node refused for a reason that only a later version knows (%d)", r)
}

func refusalOf(err error) refusal {
	if err == nil {
		return 0
	}
	for code, e := range refusals {
		if e != nil && errors.Is(err, e) {
			return refusal(code)
		}
	}
	return refusal(len(refusals))
}

// greeting is a hello with what concerns this one connection.
type greeting struct {
	Hello
	purpose purpose
	secret  bool
	to      NodeID
	nonce   [32]byte
}

// appendGreeting appends the bytes of a hello.
func appendGreeting(dst []byte, g *greeting) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, g.Least)
	dst = binary.LittleEndian.AppendUint16(dst, g.Most)
	dst = append(dst, 0, 0, 0, 0)
	flags := byte(0)
	if g.secret {
		flags |= flagSecret
	}
	dst = append(dst, byte(g.purpose), flags)
	dst = append(dst, g.Cluster[:]...)
	for _, n := range []uint64{uint64(g.Node), g.Incarnation, g.Instance, uint64(g.to)} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	dst = append(dst, g.nonce[:]...)
	for _, s := range []string{g.Name, g.Addr, string(g.Info)} {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
		dst = append(dst, s...)
	}
	for _, level := range []uint16{g.Levels.Least, g.Levels.Most, g.Levels.Cluster} {
		dst = binary.LittleEndian.AppendUint16(dst, level)
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(g.Line)))
	dst = append(dst, g.Line...)
	binary.LittleEndian.PutUint32(dst[start+helloHead-4:], uint32(len(dst)-start-helloHead))
	return dst
}

// readGreeting reads the bytes of one hello, and nothing behind it. Where error
// is ErrVersion, the versions are in the greeting.
func readGreeting(r io.Reader, least, most uint16) (g greeting, raw []byte, err error) {
	var head [helloHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return g, nil, cutOff(err)
	}
	if string(head[:8]) != magic {
		return g, nil, notMagic(head[:])
	}
	g.Least, g.Most = binary.LittleEndian.Uint16(head[8:]), binary.LittleEndian.Uint16(head[10:])
	size := binary.LittleEndian.Uint32(head[12:])
	if size > maxHello {
		return g, nil, fmt.Errorf("%w: a hello of %d bytes", ErrGarbage, size)
	}
	raw = make([]byte, helloHead+size)
	copy(raw, head[:])
	if _, err := io.ReadFull(r, raw[helloHead:]); err != nil {
		return g, nil, cutOff(err)
	}
	if g.Least > most || g.Most < least {
		return g, raw, ErrVersion
	}
	err = parseGreeting(raw[helloHead:], &g)
	return g, raw, err
}

// parseGreeting reads what stands behind the head.
func parseGreeting(body []byte, g *greeting) error {
	const fixed = 2 + 16 + 4*8 + 32
	if len(body) < fixed {
		return fmt.Errorf("%w: a hello of %d bytes is too short", ErrGarbage, len(body))
	}
	g.purpose, g.secret = purpose(body[0]), body[1]&flagSecret != 0
	copy(g.Cluster[:], body[2:])
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(body[18+8*i:]) }
	g.Node, g.Incarnation, g.Instance, g.to = NodeID(number(0)), number(1), number(2), NodeID(number(3))
	copy(g.nonce[:], body[18+4*8:])
	rest := body[fixed:]
	var texts [3][]byte
	for i, longest := range []int{maxName, maxAddr, maxInfo} {
		if len(rest) < 2 {
			return fmt.Errorf("%w: a hello ends too early", ErrGarbage)
		}
		n := int(binary.LittleEndian.Uint16(rest))
		if n > longest || n > len(rest)-2 {
			return fmt.Errorf("%w: a text of %d bytes in a hello", ErrGarbage, n)
		}
		texts[i], rest = rest[2:2+n:2+n], rest[2+n:]
	}
	g.Name, g.Addr, g.Info = string(texts[0]), string(texts[1]), texts[2]
	if len(rest) >= 6 {
		level := func(i int) uint16 { return binary.LittleEndian.Uint16(rest[2*i:]) }
		g.Levels = Levels{Least: level(0), Most: level(1), Cluster: level(2)}
		rest = rest[6:]
	}
	if len(rest) >= 2 {
		n := int(binary.LittleEndian.Uint16(rest))
		if n > maxLine || n > len(rest)-2 {
			return fmt.Errorf("%w: a line of %d bytes in a hello", ErrGarbage, n)
		}
		g.Line = rest[2 : 2+n : 2+n]
	}
	if g.Node == 0 {
		return fmt.Errorf("%w: a node without an id", ErrGarbage)
	}
	return nil
}

// challenge is the first answer of the side that accepts.
type challenge struct {
	least, most uint16
	refused     refusal
	secret      bool
	nonce       [32]byte
}

func appendChallenge(dst []byte, c *challenge) []byte {
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, c.least)
	dst = binary.LittleEndian.AppendUint16(dst, c.most)
	flags := byte(0)
	if c.secret {
		flags |= flagSecret
	}
	dst = append(dst, byte(c.refused), flags)
	return append(dst, c.nonce[:]...)
}

func readChallenge(r io.Reader) (c challenge, raw []byte, err error) {
	raw = make([]byte, challengeSize)
	if _, err := io.ReadFull(r, raw[:8]); err != nil {
		return c, nil, cutOff(err)
	}
	if string(raw[:8]) != magic {
		return c, nil, notMagic(raw[:8])
	}
	if _, err := io.ReadFull(r, raw[8:]); err != nil {
		return c, nil, cutOff(err)
	}
	c.least, c.most = binary.LittleEndian.Uint16(raw[8:]), binary.LittleEndian.Uint16(raw[10:])
	c.refused, c.secret = refusal(raw[12]), raw[13]&flagSecret != 0
	copy(c.nonce[:], raw[14:])
	return c, raw, nil
}

// The names of the roles in proofs.
const (
	roleDials   = "holdfast peer: dials"
	roleAccepts = "holdfast peer: accepts"
)

// prove is the proof of a role over everything that was sent before it.
func prove(secret []byte, role string, sent ...[]byte) []byte {
	if len(secret) == 0 {
		return make([]byte, proofSize)
	}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(role))
	for _, part := range sent {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// cutOff says in words that the other side closed in the middle.
func cutOff(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("the connection was closed during the greeting: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// notMagic says what the first bytes look like instead.
func notMagic(got []byte) error {
	switch {
	case got[0] == 0x16 && got[1] == 3, got[0] == 0x15 && got[1] == 3:
		return fmt.Errorf("%w: the other side speaks TLS and this node does not", ErrGarbage)
	case string(got[:4]) == "AMQP":
		return fmt.Errorf("%w: the other side speaks AMQP; clients have another port", ErrGarbage)
	case string(got[:4]) == "HTTP" || string(got[:4]) == "GET ":
		return fmt.Errorf("%w: the other side speaks HTTP", ErrGarbage)
	}
	return fmt.Errorf("%w: it begins with %q", ErrGarbage, got[:8])
}
