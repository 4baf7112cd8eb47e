package catalog

import (
	"encoding/binary"

	"holdfast/internal/routing"
)

func permissionKey(user, vhost string) string {
	return string(appendPart(appendPart(make([]byte, 0, len(user)+len(vhost)+4), user), vhost))
}

// sourceKey sorts bindings by source, then destination, key and arguments.
func sourceKey(b *Binding) string {
	k := appendPart(make([]byte, 0, 64), b.Source)
	k = appendPart(append(k, byte(b.Kind)), b.Destination)
	k = appendPart(k, b.Key)
	return string(append(k, routing.Canonical(b.Args)...))
}

// targetKey sorts bindings by destination, then source, key and arguments.
func targetKey(b *Binding) string {
	k := appendPart(append(make([]byte, 0, 64), byte(b.Kind)), b.Destination)
	k = appendPart(k, b.Source)
	k = appendPart(k, b.Key)
	return string(append(k, routing.Canonical(b.Args)...))
}

// sourcePrefix starts the sourceKeys of all bindings from one exchange to one destination.
func sourcePrefix(source string, kind Kind, destination string) string {
	return string(appendPart(append(appendPart(nil, source), byte(kind)), destination))
}

// targetPrefix starts the targetKeys of all bindings to one destination.
func targetPrefix(kind Kind, destination string) string {
	return string(appendPart([]byte{byte(kind)}, destination))
}

// ownerKey sorts what belongs to a connection, and with it to a node's incarnation: that is the upper bits of the ConnID.
func ownerKey(owner ConnID, id uint64) string {
	return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(owner)), id))
}

func (q *Queue) ownerKey() string {
	owner := q.Owner
	if owner == 0 {
		owner = MakeConnID(q.Incarnation, 0)
	}
	return ownerKey(owner, uint64(q.ID))
}

func (x *Exchange) ownerKey() string {
	return ownerKey(MakeConnID(x.Incarnation, 0), uint64(x.ID))
}
