// Package routing answers one question: which targets does an exchange's set of bindings choose for a message?
//
// An [Index] holds the bindings of one exchange in the form that its type matches fastest. It is immutable; a bind or an
// unbind gives a new Index that shares all but one path with the old one. The package is pure: no locks, no clocks, no
// chance, no names of vhosts or exchanges. Following a binding to a further exchange, and the alternate exchange, are the
// caller's, and so are the numbers that a random exchange draws.
//
//	index.go    Target, Kind, Index: bind, unbind, match, whatever the type
//	message.go  what there is to know of a message
//	topic.go    topic exchanges: a tree of words
//	ways.go     from one word of it to the next
//	headers.go  headers exchanges: rules found by the headers they need
//	hashed.go   exchanges that choose one binding: consistent hash, modulus hash, random
//	shares.go   keys divided among targets with weights
//	hash.go     hashes, and the clock that shares.go needs
//	targets.go  where bindings that match alike lead
//	values.go   when two argument values are the same
//	check.go    which bindings a type refuses
//	ordmap/     the ordered map all of it stands on
package routing
