package detour

import (
	"holdfast/internal/bytecodec"
	"holdfast/internal/peer"
)

// frameVersion stands in every frame and in what heartbeats carry.
const frameVersion = 1

// kind says what a frame is for.
type kind uint8

const (
	kindOpen   kind = iota // incarnation and info of who opens
	kindAccept             // incarnation and info of who was asked
	kindReady              // the first side has taken the accept
	kindData               // seq and a message, on the lane that it belongs to
	kindAck                // how many bytes of each lane were taken, from the start
	kindEnd                // the detour is over, or never was

	lastKind = kindEnd
)

// frame is one message of a detour. from and to are its ends, whoever passes it on.
type frame struct {
	kind     kind
	from, to peer.NodeID
	id       uint64 // of the detour: its opener's start and number

	incarnation uint64 // kindOpen, kindAccept
	info        []byte
	seq         uint64 // kindData: from 1 on each lane
	msg         []byte
	taken       [peer.Lanes]uint64 // kindAck
}

// head is the most bytes that a data frame has before its message, the tag included.
const head = 3 + 8 + 8 + 10 + 10

func (f *frame) append(dst []byte) []byte {
	dst = append(dst, frameVersion, byte(f.kind))
	dst = bytecodec.AppendFixed64(dst, uint64(f.from))
	dst = bytecodec.AppendFixed64(dst, uint64(f.to))
	dst = bytecodec.AppendUint(dst, f.id)
	switch f.kind {
	case kindOpen, kindAccept:
		dst = bytecodec.AppendUint(dst, f.incarnation)
		dst = bytecodec.AppendBytes(dst, f.info)
	case kindData:
		dst = bytecodec.AppendUint(dst, f.seq)
		dst = append(dst, f.msg...)
	case kindAck:
		dst = bytecodec.AppendUints(dst, f.taken[:]...)
	}
	return dst
}

// parse reads a frame. Its info and msg are parts of b.
func parse(b []byte) (f frame, err error) {
	c := bytecodec.Over(b)
	if c.Byte() != frameVersion {
		c.Fail()
	}
	if f.kind = kind(c.Byte()); f.kind > lastKind {
		c.Fail()
	}
	f.from, f.to = peer.NodeID(c.Fixed64()), peer.NodeID(c.Fixed64())
	f.id = c.Uint()
	switch f.kind {
	case kindOpen, kindAccept:
		f.incarnation = c.Uint()
		f.info = c.Bytes()
	case kindData:
		f.seq = c.Uint()
		f.msg = c.Take(uint64(len(c.Rest)))
	case kindAck:
		for i := range f.taken {
			f.taken[i] = c.Uint()
		}
	}
	return f, c.End()
}

// mostHeard is how many nodes a heartbeat names.
const mostHeard = 256

// heard is what a heartbeat says about another node: its sender hears it, and, as far as it knows, the other way round.
type heard struct {
	id   peer.NodeID
	both bool
}

func appendHeard(dst []byte, list []heard) []byte {
	dst = append(dst, frameVersion)
	list = list[:min(len(list), mostHeard)]
	dst = bytecodec.AppendUint(dst, uint64(len(list)))
	for _, h := range list {
		dst = bytecodec.AppendBool(bytecodec.AppendFixed64(dst, uint64(h.id)), h.both)
	}
	return dst
}

// parseHeard reads whom a node hears. From one of another version nothing is known. What follows is the rooms', and whatever else
// a node says that knows more than this one: who does not look for it leaves it alone.
func parseHeard(b []byte) (list []heard, rest []byte, known bool) {
	c := bytecodec.Over(b)
	if c.Byte() != frameVersion {
		return nil, nil, false
	}
	for range min(c.Count(9), mostHeard) {
		list = append(list, heard{peer.NodeID(c.Fixed64()), c.Bool()})
	}
	if c.Bad() {
		return nil, nil, false
	}
	return list, c.Rest, true
}
