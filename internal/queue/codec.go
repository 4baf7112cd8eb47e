package queue

import (
	"errors"

	"holdfast/internal/bytecodec"
)

// ErrFormat says that bytes are no commands, or no snapshot, of a known version.
var ErrFormat = errors.New("queue: unknown format")

// The log form of commands is a version byte and then the commands, each
//
//	kind    u8
//	fields  uvarint, a bit for each field that is not zero (fieldFlags ...)
//	the fields, in order of their bits, each a uvarint
//
// A field costs nothing where it is not used, and a new one gets a new bit: older
// machines refuse it with ErrFormat instead of misreading it.
const commandVersion = 1

// The fields. Those of the frequent commands come first, so that the mask is one byte.
const (
	fieldFlags = 1 << iota
	fieldConsumer
	fieldSession
	fieldCount
	fieldBytes
	fieldFirst
	fieldMore // Last - First
	fieldHow
	fieldSeq
	fieldLane
	fieldChunks
	fieldUpload
	fieldCredit
	fieldPrefetch
	fieldPriority // zigzag
	fieldEpoch
	fieldNode
	fieldIncarnation
	fieldOuter
	fieldHeard
	fieldSet // length in bytes, settings
	fieldTTL
	fieldDelay
	fieldTimeout
	fieldKey // 16 bytes
	fieldSequence
	fieldTx
	fieldParts
	fieldCarried // without a value
	fieldScreen  // exchange, key of 16 bytes, window, keys
	fieldStrict  // without a value

	fieldsAll = 1<<iota - 1
)

const (
	bitPersistent = 1 << iota
	bitNoAck
	bitExclusive
	bitWake
	bitGetter
	bitDrain
	bitBlameless
	bitClean
	bitAutoDelete
	bitRanked

	bitsAll = 1<<iota - 1
)

// AppendCommands appends the log form of commands to dst.
func AppendCommands(dst []byte, cs []Command) []byte {
	dst = append(dst, commandVersion)
	for i := range cs {
		dst = appendCommand(dst, &cs[i])
	}
	return dst
}

func appendCommand(dst []byte, c *Command) []byte {
	fields := [...]uint64{
		c.flags(), uint64(c.Consumer), uint64(c.Session), uint64(c.Count), c.Bytes, c.First, c.Last - c.First,
		uint64(c.How), c.Seq, uint64(c.Lane), uint64(c.Chunks), c.Upload, uint64(c.Credit), uint64(c.Prefetch),
		zigzag(c.Priority), c.Epoch,
	}
	mask := uint64(0)
	for i, f := range fields {
		if f != 0 {
			mask |= 1 << i
		}
	}
	if c.Node|c.Incarnation|c.Outer != 0 || c.Terms != nil {
		mask |= c.rareMask()
	}
	dst = append(dst, byte(c.Kind))
	dst = bytecodec.AppendUint(dst, mask)
	for _, f := range fields {
		if f != 0 {
			dst = bytecodec.AppendUint(dst, f)
		}
	}
	if mask >= fieldNode { // few commands have these
		dst = c.appendRare(dst)
	}
	return dst
}

// rareMask returns the bits of the fields that most commands have not.
func (c *Command) rareMask() uint64 {
	t := c.terms()
	return maskIf(c.Node, fieldNode) | maskIf(c.Incarnation, fieldIncarnation) | maskIf(c.Outer, fieldOuter) |
		maskIf(t.Heard, fieldHeard) | bit(t.Set != nil, fieldSet) | maskIf(uint64(t.TTL), fieldTTL) | maskIf(t.Delay, fieldDelay) |
		maskIf(t.Timeout, fieldTimeout) | bit(t.Key != Key{}, fieldKey) | maskIf(uint64(t.Sequence), fieldSequence) |
		maskIf(uint64(t.Tx), fieldTx) | maskIf(t.Parts, fieldParts) | bit(t.Carried, fieldCarried) | bit(t.Screen != nil, fieldScreen) |
		bit(t.Strict, fieldStrict)
}

func (c *Command) appendRare(dst []byte) []byte {
	t := c.terms()
	for _, f := range [...]uint64{c.Node, c.Incarnation, c.Outer, t.Heard} {
		if f != 0 {
			dst = bytecodec.AppendUint(dst, f)
		}
	}
	if t.Set != nil {
		dst = bytecodec.AppendBytes(dst, t.Set.append(nil))
	}
	for _, f := range [...]uint64{uint64(t.TTL), t.Delay, t.Timeout} {
		if f != 0 {
			dst = bytecodec.AppendUint(dst, f)
		}
	}
	if t.Key != (Key{}) {
		dst = append(dst, t.Key[:]...)
	}
	for _, f := range [...]uint64{uint64(t.Sequence), uint64(t.Tx), t.Parts} {
		if f != 0 {
			dst = bytecodec.AppendUint(dst, f)
		}
	}
	if t.Screen != nil {
		dst = appendScreen(dst, t.Screen)
	}
	return dst
}

func maskIf(field, mask uint64) uint64 { return bit(field != 0, mask) }

// DecodeCommands appends the commands that src holds to dst. It does not keep
// src. It takes at most 140 times the memory of src.
func DecodeCommands(dst []Command, src []byte) ([]Command, error) {
	if len(src) == 0 || src[0] != commandVersion {
		return dst, ErrFormat
	}
	d := decoder{Cursor: bytecodec.Over(src[1:])}
	for len(d.Rest) > 0 {
		dst = append(dst, Command{})
		d.command(&dst[len(dst)-1])
		if d.Bad() {
			return dst[:len(dst)-1], ErrFormat
		}
	}
	return dst, nil
}

func (d *decoder) command(c *Command) {
	c.Kind = Kind(d.Byte())
	mask := d.Uint()
	if c.Kind < Configure || c.Kind > lastKind || mask&^fieldsAll != 0 {
		d.Fail()
		return
	}
	if mask&fieldFlags != 0 {
		c.setFlags(d.UpTo(bitsAll))
	}
	if mask&fieldConsumer != 0 {
		c.Consumer = ConsumerID(d.Uint())
	}
	if mask&fieldSession != 0 {
		c.Session = SessionID(d.Uint())
	}
	if mask&fieldCount != 0 {
		c.Count = uint32(d.UpTo(MaxCount))
	}
	if mask&fieldBytes != 0 {
		c.Bytes = d.Uint()
	}
	if mask&fieldFirst != 0 {
		c.First = d.Uint()
	}
	c.Last = c.First
	if mask&fieldMore != 0 {
		c.Last = c.First + d.Uint()
	}
	if mask&fieldHow != 0 {
		c.How = Settlement(d.UpTo(uint64(Discard)))
	}
	if mask&fieldSeq != 0 {
		c.Seq = d.Uint()
	}
	if mask&fieldLane != 0 {
		c.Lane = uint8(d.UpTo(MaxLane))
	}
	if mask&fieldChunks != 0 {
		c.Chunks = uint32(d.UpTo(^uint64(0) >> 32))
	}
	if mask&fieldUpload != 0 {
		c.Upload = d.Uint()
	}
	if mask&fieldCredit != 0 {
		c.Credit = uint32(d.UpTo(^uint64(0) >> 32))
	}
	if mask&fieldPrefetch != 0 {
		c.Prefetch = uint32(d.UpTo(^uint64(0) >> 32))
	}
	if mask&fieldPriority != 0 {
		c.Priority = unzigzag(d.UpTo(^uint64(0) >> 32))
	}
	if mask&fieldEpoch != 0 {
		c.Epoch = d.Uint()
	}
	if mask >= fieldNode {
		d.rare(c, mask)
	}
	if c.Kind == Enqueue && (c.Count == 0 || c.Chunks > 0 && c.Count != 1) || c.Kind == Chunk && c.Count == 0 {
		d.Fail()
	}
}

// rare reads the fields that most commands have not.
func (d *decoder) rare(c *Command, mask uint64) {
	if mask&fieldNode != 0 {
		c.Node = d.Uint()
	}
	if mask&fieldIncarnation != 0 {
		c.Incarnation = d.Uint()
	}
	if mask&fieldOuter != 0 {
		c.Outer = d.Uint()
	}
	if mask >= fieldHeard {
		c.own()
	}
	if mask&fieldHeard != 0 {
		c.Terms.Heard = d.Uint()
	}
	if mask&fieldSet != 0 {
		in := decoder{Cursor: bytecodec.Over(d.Bytes())}
		s := in.settings()
		c.Terms.Set = &s
		if in.Bad() || c.Kind != Set {
			d.Fail()
		}
	}
	if mask&fieldTTL != 0 {
		c.Terms.TTL = Limit(d.Uint())
	}
	if mask&fieldDelay != 0 {
		c.Terms.Delay = d.Uint()
	}
	if mask&fieldTimeout != 0 {
		c.Terms.Timeout = d.Uint()
	}
	if mask&fieldKey != 0 {
		if c.Terms.Key = d.key(); c.Kind == Enqueue && c.Count != 1 {
			d.Fail()
		}
	}
	if mask&fieldSequence != 0 {
		c.Terms.Sequence = Limit(d.Uint())
	}
	if mask&fieldTx != 0 {
		c.Terms.Tx = uint32(d.UpTo(^uint64(0) >> 32))
	}
	if mask&fieldCarried != 0 {
		c.Terms.Carried = true
	}
	if mask&fieldStrict != 0 {
		c.Terms.Strict = true
	}
	if mask&fieldParts != 0 {
		c.Terms.Parts = d.Uint()
	}
	if mask&fieldScreen != 0 {
		if c.Terms.Screen = d.screen(); c.Kind != Enqueue || c.Count != 1 {
			d.Fail()
		}
	}
	if c.Terms != nil && *c.Terms == noTerms {
		c.Terms = nil
	}
}

// own gives the command Terms of its own, if it has none.
func (c *Command) own() {
	if c.Terms == nil {
		c.Terms = &Terms{}
	}
}

func (c *Command) flags() uint64 {
	return bit(c.Persistent, bitPersistent) | bit(c.NoAck, bitNoAck) | bit(c.Exclusive, bitExclusive) |
		bit(c.Wake, bitWake) | bit(c.Getter, bitGetter) | bit(c.Drain, bitDrain) |
		bit(c.Blameless, bitBlameless) | bit(c.Clean, bitClean) | bit(c.AutoDelete, bitAutoDelete) | bit(c.Terms != nil && c.Terms.Ranked, bitRanked)
}

func (c *Command) setFlags(f uint64) {
	c.Persistent, c.NoAck, c.Exclusive = f&bitPersistent != 0, f&bitNoAck != 0, f&bitExclusive != 0
	c.Wake, c.Getter, c.Drain = f&bitWake != 0, f&bitGetter != 0, f&bitDrain != 0
	c.Blameless, c.Clean, c.AutoDelete = f&bitBlameless != 0, f&bitClean != 0, f&bitAutoDelete != 0
	if f&bitRanked != 0 {
		c.own()
		c.Terms.Ranked = true
	}
}

func bit(on bool, mask uint64) uint64 {
	if on {
		return mask
	}
	return 0
}

func zigzag(n int32) uint64 { return uint64(uint32(n<<1) ^ uint32(n>>31)) }

func unzigzag(u uint64) int32 { return int32(uint32(u)>>1) ^ -int32(u&1) }

// decoder reads numbers off the front of commands and snapshots.
type decoder struct {
	bytecodec.Cursor
	version byte // of a snapshot
}
