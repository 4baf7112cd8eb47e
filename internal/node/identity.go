package node

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/vfs"
)

// The names in the data folder that are the node's own.
const (
	lockName     = "lock"
	identityName = "identity.json"
	logDir       = "log"
	spillDir     = "spill"
)

// Versions of the data folder's layout: of a node that was always alone, and of one in a cluster, which those who know
// only the former must not open. A later one is not opened.
const (
	formatAlone   = 1
	formatCluster = 2
	formatVersion = formatCluster
)

// identity says whose data folder this is. A node is who its folder says it
// is: neither the machine's name nor an address matters.
type identity struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	// Of a node that was ever told of a cluster:
	Node    uint64         `json:"node,string,omitempty"` // what the cluster knows it by
	Starts  uint64         `json:"starts,omitempty"`
	Cluster *cluster.State `json:"cluster,omitempty"`
	// Peers are the nodes of the cluster as they were last known, to be found again by.
	Peers []cluster.Node `json:"peers,omitempty"`
	// Level is the highest level of formats that may be in the folder; absent: the first.
	Level uint16 `json:"level,omitempty"`
	// Line is the line of the cluster's catalog that the node follows; Forcing names the force by which a new one may have begun here,
	// where that could not be settled yet.
	Line    cluster.Line   `json:"line,omitempty"`
	Forcing *cluster.Force `json:"forcing,omitempty"`
	// Refused are the forces of lines that the node does not take over any more (lineage.meet).
	Refused cluster.Line `json:"refused,omitempty"`
}

// number is what catalog and other nodes know the node by; never 0.
func (id *identity) number() uint64 {
	if id.Node != 0 {
		return id.Node
	}
	return catalog.NodeIDOf(id.ID)
}

// bound reports whether the folder belongs to a cluster, or has consented to found one.
func (id *identity) bound() bool {
	return id.Cluster != nil && (id.Cluster.Founding != nil || id.Cluster.Granted != nil)
}

// save writes the identity.
func (id *identity) save(fs vfs.FS, dir string) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return writeFile(fs, dir, identityName, append(data, '\n'))
}

// hasLog reports whether anything was ever logged in the folder.
func hasLog(fs vfs.FS, dir string) bool {
	names, err := fs.List(path.Join(dir, logDir))
	return err == nil && len(names) > 0
}

// ErrInUse says that another process has the data folder.
var ErrInUse = errors.New("data folder is in use by another process")

// lockData makes the data folder, if it is not there, and locks it.
func lockData(fs vfs.FS, dir string) (io.Closer, error) {
	if err := fs.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	lock, err := fs.Lock(path.Join(dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder %s cannot be locked: %w", dir, err)
	}
	return lock, nil
}

// openIdentity reads the folder's identity or, in a folder without data, makes one. fresh says that nothing was logged in
// it yet.
func openIdentity(fs vfs.FS, dir string) (id identity, fresh bool, err error) {
	if err := finishReset(fs, dir); err != nil {
		return id, false, err
	}
	name := path.Join(dir, identityName)
	data, err := readFile(fs, name)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &id); err != nil || id.ID == "" {
			return id, false, fmt.Errorf("%s is damaged; put the file of a backup there, or one with the line %s",
				name, `{"format":1,"id":"a name of your choice"}`)
		}
		if id.Format > formatVersion {
			return id, false, fmt.Errorf("%s was written by a later version (format %d, this one knows %d)", dir, id.Format, formatVersion)
		}
		return id, !hasLog(fs, dir), nil
	case !vfs.IsNotExist(err):
		return id, false, fmt.Errorf("data folder %s: %w", dir, err)
	}
	// The identity is written before anything else: a folder with a log and
	// without one has lost it.
	if hasLog(fs, dir) {
		return id, false, fmt.Errorf("data folder %s has a log but no %s; put it back, or write one with the line %s",
			dir, identityName, `{"format":1,"id":"a name of your choice"}`)
	}
	id = newIdentity()
	return id, true, id.save(fs, dir)
}

func newIdentity() identity { return identity{Format: formatAlone, ID: newNodeID()} }

func newNodeID() string {
	var bits [10]byte
	rand.Read(bits[:])
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(bits[:]))
}

// readFile reads a small file.
func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, err
	}
	return data, nil
}

// writeFile writes a small file so that after a crash it is there whole or not at all.
func writeFile(fs vfs.FS, dir, name string, data []byte) error {
	temporary := path.Join(dir, name+".new")
	if err := fs.Remove(temporary); err != nil && !vfs.IsNotExist(err) {
		return err
	}
	f, err := fs.Create(temporary)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := fs.Rename(temporary, path.Join(dir, name)); err != nil {
		return err
	}
	return fs.SyncDir(dir)
}
