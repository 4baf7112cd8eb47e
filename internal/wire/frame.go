package wire

import (
	"encoding/binary"

	"holdfast/internal/invariant"
)

// FrameType is the first octet of a frame.
type FrameType uint8

// The frame types of AMQP 0-9-1.
const (
	FrameMethod    FrameType = 1
	FrameHeader    FrameType = 2
	FrameBody      FrameType = 3
	FrameHeartbeat FrameType = 8
)

// String names the type as error texts do.
func (t FrameType) String() string {
	switch t {
	case FrameMethod:
		return "method frame"
	case FrameHeader:
		return "content header frame"
	case FrameBody:
		return "content body frame"
	case FrameHeartbeat:
		return "heartbeat frame"
	}
	return "frame of unknown type"
}

// Sizes of the parts of a frame.
const (
	FrameHeaderSize = 7 // type, channel, payload size
	FrameEnd        = 0xCE
	FrameOverhead   = FrameHeaderSize + 1
	// MinFrameMax is the smallest frame_max the protocol allows.
	MinFrameMax = 4096
)

// Frame is one frame, borrowed.
type Frame struct {
	Type    FrameType
	Channel uint16
	Payload []byte
}

// FrameHead is the fixed part in front of a frame's payload.
type FrameHead struct {
	Type    FrameType
	Channel uint16
	Size    uint32
}

// ParseFrameHead reads a head from at least FrameHeaderSize bytes.
func ParseFrameHead(b []byte) FrameHead {
	_ = b[FrameHeaderSize-1]
	return FrameHead{FrameType(b[0]), binary.BigEndian.Uint16(b[1:]), binary.BigEndian.Uint32(b[3:])}
}

// Known reports whether the type is one of the protocol's.
func (t FrameType) Known() bool {
	return t == FrameMethod || t == FrameBody || t == FrameHeader || t == FrameHeartbeat
}

// AppendFrameHead appends the fixed part of a frame; payload and FrameEnd must
// follow.
func AppendFrameHead(dst []byte, t FrameType, channel uint16, size int) []byte {
	return append(dst, byte(t), byte(channel>>8), byte(channel),
		byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
}

// AppendHeartbeat appends a heartbeat frame.
func AppendHeartbeat(dst []byte) []byte {
	return append(dst, byte(FrameHeartbeat), 0, 0, 0, 0, 0, 0, FrameEnd)
}

// AppendMethod appends a method frame.
func AppendMethod(dst []byte, channel uint16, m Method) []byte {
	invariant.Pass("wire", "method appended")
	start := len(dst)
	dst = AppendFrameHead(dst, FrameMethod, channel, 0)
	dst = m.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start+3:], uint32(len(dst)-start-FrameHeaderSize))
	return append(dst, FrameEnd)
}

// AppendContent appends the header frame and the body frames of a message of
// class basic. No frame is larger than frameMax (0 = no limit), overhead
// included; an empty body has no body frame.
func AppendContent(dst []byte, channel uint16, p Properties, body []byte, frameMax uint32) []byte {
	dst = AppendContentHeader(dst, channel, p, uint64(len(body)))
	return AppendBody(dst, channel, body, frameMax)
}

// AppendContentHeader appends a content header frame of class basic.
func AppendContentHeader(dst []byte, channel uint16, p Properties, bodySize uint64) []byte {
	if len(p) == 0 {
		p = noProperties
	}
	dst = AppendFrameHead(dst, FrameHeader, channel, 12+len(p))
	dst = append(dst, 0, ClassBasic, 0, 0)
	dst = binary.BigEndian.AppendUint64(dst, bodySize)
	dst = append(dst, p...)
	return append(dst, FrameEnd)
}

var noProperties = Properties{0, 0}

// AppendBody appends as many body frames as the piece of a body needs.
func AppendBody(dst []byte, channel uint16, piece []byte, frameMax uint32) []byte {
	most := len(piece)
	if frameMax != 0 {
		most = min(most, int(frameMax)-FrameOverhead)
	}
	for len(piece) > 0 {
		n := min(most, len(piece))
		dst = AppendFrameHead(dst, FrameBody, channel, n)
		dst = append(dst, piece[:n]...)
		dst = append(dst, FrameEnd)
		piece = piece[n:]
	}
	return dst
}

// ContentHeader is the payload of a content header frame, borrowed.
type ContentHeader struct {
	Class      uint16
	BodySize   uint64
	Properties Properties
}

// ParseContentHeader reads the payload of a content header frame. Properties
// of classes other than basic do not exist and are refused.
func ParseContentHeader(b []byte) (ContentHeader, error) {
	invariant.Pass("wire", "content header parsed")
	if len(b) < 14 {
		return ContentHeader{}, errShort
	}
	h := ContentHeader{Class: binary.BigEndian.Uint16(b), BodySize: binary.BigEndian.Uint64(b[4:])}
	var err error
	h.Properties, err = ParseProperties(b[12:])
	return h, err
}

// ProtocolHeaderSize is the size of what a client sends first.
const ProtocolHeaderSize = 8

// Greeting is what a server makes of a client's protocol header.
type Greeting uint8

const (
	// Accepted: AMQP 0-9-1 follows.
	Accepted Greeting = iota
	// Refused091: another 0-9 dialect; answered with the 0-9-1 header.
	Refused091
	// Refused100SASL: AMQP 1.0 with SASL, which is not spoken here; answered
	// with the 0-9-1 header.
	Refused100SASL
	// RefusedOther: no dialect we know; answered with the AMQP 1.0 SASL header
	// as RabbitMQ 4 does.
	RefusedOther
)

// ParseProtocolHeader judges the first eight bytes of a connection.
func ParseProtocolHeader(h [ProtocolHeaderSize]byte) Greeting {
	if string(h[:4]) != "AMQP" {
		return RefusedOther
	}
	switch v := [4]byte(h[4:]); {
	case v == [4]byte{0, 0, 9, 1}, v == [4]byte{1, 1, 0, 9}:
		return Accepted
	case v == [4]byte{3, 1, 0, 0}:
		return Refused100SASL
	case v[0] == 0 && v[1] == 0 && v[2] >= 9:
		return Refused091
	}
	return RefusedOther
}

// Answer returns the protocol header that a refusing server writes before it
// closes; nothing for an accepted one.
func (g Greeting) Answer() []byte {
	switch g {
	case Accepted:
		return nil
	case RefusedOther:
		return []byte("AMQP\x03\x01\x00\x00")
	}
	return []byte("AMQP\x00\x00\x09\x01")
}
