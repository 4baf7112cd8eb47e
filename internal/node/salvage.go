package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"holdfast/internal/clock"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// openStopped opens the log of a node that is not running, to be read only.
// The data folder stays locked until release, unless nothing can be written
// there: then no node can run in it either.
func openStopped(fs vfs.FS, dataDir string, log *slog.Logger) (l *seglog.Log, release func() error, err error) {
	dir := path.Join(dataDir, logDir)
	if names, err := fs.List(dir); err != nil || len(names) == 0 {
		return nil, nil, fmt.Errorf("there is no log in %s", dir)
	}
	lock, err := lockData(fs, dataDir)
	switch {
	case vfs.IsReadOnly(err):
		log.Warn("the data folder is read-only: it is not locked", "data", dataDir)
		lock = io.NopCloser(nil)
	case err != nil:
		return nil, nil, err
	}
	l, err = seglog.Open(fs, dir, seglog.Options{ReadOnly: true, Clock: clock.System(), Logger: log})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("log in %s: %w", dir, err), lock.Close())
	}
	return l, func() error { return errors.Join(l.Close(false), lock.Close()) }, nil
}

// Dump writes what the log of a stopped node holds, in readable form.
func Dump(fs vfs.FS, dataDir string, w io.Writer, log *slog.Logger) (err error) {
	l, release, err := openStopped(fs, dataDir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	return l.Dump(w)
}

// Salvaged is what was copied out of one group.
type Salvaged struct {
	Group    uint64
	Reason   string // why the group is quarantined, "" if it is not
	Messages int
	Chunks   int // pieces of large bodies, in lines of their own
	File     string
}

// Salvage copies what is whole of groups of a stopped node into files in
// folder, a line of JSON for each message. Without groups it takes those that
// are quarantined, or all if the catalog is one of them: then nothing serves.
// Messages that were acknowledged not long ago may be among what is found:
// their bytes may still be there, those of deleted queues too. A group of which
// nothing is there at all is an error.
func Salvage(fs vfs.FS, dataDir, folder string, groups []uint64, log *slog.Logger) (list []Salvaged, err error) {
	l, release, err := openStopped(fs, dataDir, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	reasons := map[uint64]string{}
	for _, hit := range l.Quarantined() {
		reasons[uint64(hit.Group)] = hit.Reason
	}
	there, unread := groupsOf(l)
	if len(groups) == 0 {
		if unread != nil {
			return nil, unread
		}
		groups = worthCopying(there)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	for _, g := range groups {
		s := Salvaged{Group: g, Reason: reasons[g], File: filepath.Join(folder, fmt.Sprintf("group-%d.jsonl", g))}
		err := s.copyOut(l)
		if _, known := there[g]; err == nil && unread == nil && !known && s.Messages+s.Chunks == 0 {
			err = errors.Join(errNoGroup, os.Remove(s.File))
		}
		if err != nil {
			return list, fmt.Errorf("group %d: %w", g, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// errNoGroup says that a group was named of which the log knows nothing.
var errNoGroup = errors.New("the log has no such group; 'holdfast dump' prints those there are")

// groupsOf are the groups of which anything is in the log or was lost, and whether they are damaged.
func groupsOf(l *seglog.Log) (damaged map[uint64]bool, err error) {
	damaged = map[uint64]bool{}
	err = l.Replay(func(r seglog.Replayed) error {
		damaged[uint64(r.Group)] = false
		return nil
	})
	for _, hit := range l.Quarantined() {
		damaged[uint64(hit.Group)] = true
	}
	return damaged, err
}

// worthCopying gives the groups that a node could not serve.
func worthCopying(damaged map[uint64]bool) (groups []uint64) {
	nothingServes := damaged[uint64(catalogGroup)]
	for _, g := range slices.Sorted(maps.Keys(damaged)) {
		// The catalog's items are no messages; group 0 is damage that cannot be laid at a group's door.
		if g != uint64(catalogGroup) && g != 0 && (damaged[g] || nothingServes) {
			groups = append(groups, g)
		}
	}
	return groups
}

// salvagedMessage is one line of a file. The body of a large message lies in
// chunks, which are lines with Chunk, in the order they were published.
type salvagedMessage struct {
	Message    uint64         `json:"message,omitempty"`
	Chunk      uint64         `json:"chunk,omitempty"`
	Exchange   string         `json:"exchange,omitempty"`
	RoutingKey string         `json:"routing_key,omitempty"`
	Properties map[string]any `json:"properties,omitempty"`
	BodyBytes  uint64         `json:"body_bytes"`
	Chunks     int            `json:"chunks,omitempty"`
	Payload    []byte         `json:"payload"` // base64
}

// copyOut writes the group's file, which must not exist.
func (s *Salvaged) copyOut(l *seglog.Log) (err error) {
	f, err := os.OpenFile(s.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 256<<10)
	defer func() { err = errors.Join(err, w.Flush(), f.Sync(), f.Close()) }()
	out := json.NewEncoder(w)
	return l.DumpGroup(seglog.GroupID(s.Group), func(id uint64, item []byte) error {
		if queue.Number(id).Lane() == queue.ChunkLane {
			s.Chunks++
			return out.Encode(salvagedMessage{Chunk: id, BodyBytes: uint64(len(item)), Payload: item})
		}
		v, err := message.Parse(item)
		if err != nil {
			return nil // not whole after all
		}
		s.Messages++
		return out.Encode(salvagedMessage{
			Message: id, Exchange: string(v.Exchange), RoutingKey: string(v.RoutingKey),
			Properties: v.Properties.Map(), BodyBytes: v.BodySize, Chunks: v.Chunks, Payload: v.Body,
		})
	})
}
