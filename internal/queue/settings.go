package queue

import "holdfast/internal/bytecodec"

// Limit is a bound that need not be there: 0 is none, n+1 is n.
type Limit uint64

// Most returns the limit n.
func Most(n uint64) Limit { return Limit(min(n, ^uint64(0)-1)) + 1 }

// Get returns the bound, and whether there is one.
func (l Limit) Get() (n uint64, ok bool) { return uint64(l) - 1, l > 0 }

// Overflow says what is done when a queue is longer than its limit.
type Overflow uint8

const (
	// OverflowDropHead: the message that would be delivered next leaves, until the rest fits.
	OverflowDropHead Overflow = iota
	// OverflowReject: publishes that do not fit are refused. What comes back to the queue always fits.
	OverflowReject
	// OverflowRejectDLX is OverflowReject, and what is refused is dead.
	OverflowRejectDLX
)

// DeadLetter says what becomes of a message that is rejected, expired, dropped to keep a
// limit, or came back too often.
type DeadLetter uint8

const (
	// NoDeadLetter: it is released.
	NoDeadLetter DeadLetter = iota
	// DeadLetterOnce: it is dead until its letter was sent, at most once.
	DeadLetterOnce
	// DeadLetterHeld: it is dead until its letter has arrived, at least once. To the machine
	// both are one.
	DeadLetterHeld
)

// RetryType says which messages that come back have to wait before they are ready again.
type RetryType uint8

const (
	// NoRetry: none.
	NoRetry RetryType = iota
	// RetryFailed: those that come back by the fault of their consumer.
	RetryFailed
	// RetryReturned: those that a consumer gives back blamelessly.
	RetryReturned
	// RetryAll: both.
	RetryAll
)

// Settings is what a queue is told of its arguments and policies. The zero value asks for nothing.
type Settings struct {
	AutoDelete bool

	// MaxLength and MaxBytes bound the ready messages and those that wait for a time;
	// MaxBytes bounds their sizes, as far as these are known.
	MaxLength Limit
	MaxBytes  Limit
	Overflow  Overflow

	// DeliveryLimit is how often a message may come back by the fault of a consumer.
	DeliveryLimit Limit
	// TTL is after how many milliseconds a message expires, at the latest.
	TTL Limit
	// SingleActive: only one consumer gets messages.
	SingleActive bool
	// TopPriority is the highest lane that messages are put in. It is kept for the host, who
	// chooses the lanes.
	TopPriority uint8

	DeadLetter DeadLetter
	// HeldMost and HeldMostBytes bound the dead messages. Where they are reached, publishes are
	// refused; but with OverflowDropHead and a limit of the length the oldest dead message leaves.
	HeldMost      Limit
	HeldMostBytes Limit

	// Retry is which messages that come back wait, for RetryMin milliseconds times their
	// delivery count, RetryMax at the most.
	Retry    RetryType
	RetryMin uint64
	RetryMax uint64
	// Backoff: a message that is requeued again and again waits longer and longer, up to a second.
	Backoff bool

	// Paused: nothing is delivered.
	Paused bool
	// Forward: what is ready dies at once, of the reason Ripe, in the order in which it became ready. Together with
	// DeadLetter the queue keeps messages for a time, until letters carry them on.
	Forward bool

	// Deduplicate: a message is a duplicate, and does not come in, if one of its key is in the queue and not dead, or, with a
	// Window, if one has come in so many milliseconds. Of a publisher a message is a duplicate if that sequence number has
	// come, or is below all that is kept of it; Window is then how long a silent publisher is kept, without it for ever.
	// WindowBytes bounds what is kept (KeyCost, PublisherCost, RangeCost), but for the keys of messages that are in the
	// queue; what is oldest is forgotten. Without a window a duplicate is refused, or dead where letters are wanted; else it
	// counts as accepted.
	Deduplicate KeySource
	Window      Limit
	WindowBytes uint64
}

// gives reports whether messages are delivered.
func (s *Settings) gives() bool { return !s.Paused && !s.Forward }

// The settings in their log form are a tag and a value for each that is not zero, in order of
// their tags, all uvarints.
const (
	tagAutoDelete = iota + 1
	tagMaxLength
	tagMaxBytes
	tagOverflow
	tagDeliveryLimit
	tagTTL
	tagSingleActive
	tagTopPriority
	tagDeadLetter
	tagHeldMost
	tagHeldMostBytes
	tagRetry
	tagRetryMin
	tagRetryMax
	tagBackoff
	tagPaused
	tagForward
	tagDeduplicate
	tagWindow
	tagWindowBytes

	lastTag = tagWindowBytes
)

func (s *Settings) values() [lastTag]uint64 {
	return [...]uint64{
		bit(s.AutoDelete, 1), uint64(s.MaxLength), uint64(s.MaxBytes), uint64(s.Overflow), uint64(s.DeliveryLimit),
		uint64(s.TTL), bit(s.SingleActive, 1), uint64(s.TopPriority), uint64(s.DeadLetter), uint64(s.HeldMost),
		uint64(s.HeldMostBytes), uint64(s.Retry), s.RetryMin, s.RetryMax, bit(s.Backoff, 1), bit(s.Paused, 1),
		bit(s.Forward, 1), uint64(s.Deduplicate), uint64(s.Window), s.WindowBytes,
	}
}

func (s *Settings) append(dst []byte) []byte {
	for i, v := range s.values() {
		if v != 0 {
			dst = bytecodec.AppendUint(dst, uint64(i+1))
			dst = bytecodec.AppendUint(dst, v)
		}
	}
	return dst
}

// settings reads settings to the end of the bytes.
func (d *decoder) settings() Settings {
	var s Settings
	for last := uint64(0); len(d.Rest) > 0 && !d.Bad(); {
		tag := d.Uint()
		if tag <= last {
			d.Fail()
			return s
		}
		last = tag
		before := len(d.Rest)
		d.setting(&s, tag)
		if len(d.Rest) == before || s.values()[min(tag, lastTag)-1] == 0 {
			d.Fail()
		}
	}
	return s
}

func (d *decoder) setting(s *Settings, tag uint64) {
	switch tag {
	case tagAutoDelete:
		s.AutoDelete = d.UpTo(1) != 0
	case tagMaxLength:
		s.MaxLength = Limit(d.Uint())
	case tagMaxBytes:
		s.MaxBytes = Limit(d.Uint())
	case tagOverflow:
		s.Overflow = Overflow(d.UpTo(uint64(OverflowRejectDLX)))
	case tagDeliveryLimit:
		s.DeliveryLimit = Limit(d.Uint())
	case tagTTL:
		s.TTL = Limit(d.Uint())
	case tagSingleActive:
		s.SingleActive = d.UpTo(1) != 0
	case tagTopPriority:
		s.TopPriority = uint8(d.UpTo(MaxLane))
	case tagDeadLetter:
		s.DeadLetter = DeadLetter(d.UpTo(uint64(DeadLetterHeld)))
	case tagHeldMost:
		s.HeldMost = Limit(d.Uint())
	case tagHeldMostBytes:
		s.HeldMostBytes = Limit(d.Uint())
	case tagRetry:
		s.Retry = RetryType(d.UpTo(uint64(RetryAll)))
	case tagRetryMin:
		s.RetryMin = d.Uint()
	case tagRetryMax:
		s.RetryMax = d.Uint()
	case tagBackoff:
		s.Backoff = d.UpTo(1) != 0
	case tagPaused:
		s.Paused = d.UpTo(1) != 0
	case tagForward:
		s.Forward = d.UpTo(1) != 0
	case tagDeduplicate:
		s.Deduplicate = KeySource(d.UpTo(uint64(PublisherKey)))
	case tagWindow:
		s.Window = Limit(d.Uint())
	case tagWindowBytes:
		s.WindowBytes = d.Uint()
	default:
		d.Fail()
	}
}
