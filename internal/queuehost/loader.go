package queuehost

import (
	"holdfast/internal/message"
	"holdfast/internal/seglog"
)

// Loader fetches one message from the log. It pins the message's segments
// until it is used or dropped. It belongs to whoever has the delivery and is
// used by one goroutine.
type Loader struct{}

// Load reads the message. Its bytes are valid until the next read with r. A
// big message comes without its body (Message.Chunks is nil): Chunks says in
// how many pieces it is, Chunk reads them. A message without pieces is
// unpinned by Load.
func (l *Loader) Load(r *seglog.Reader) (message.Message, error)

// Chunks is the number of pieces of a big message's body; 0: the body is inline.
func (l *Loader) Chunks() int

// Chunk reads piece i, valid until the next read with r. The last piece unpins.
func (l *Loader) Chunk(r *seglog.Reader, i int) ([]byte, error)

// Drop unpins what is still pinned. It may be called more than once.
func (l *Loader) Drop()
