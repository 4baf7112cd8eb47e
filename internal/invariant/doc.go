// Package invariant holds the assertions of Holdfast.
//
// An invariant is something only a bug of ours can break. Breaking one is a panic, because going on with a broken
// invariant turns a bug into lost messages. Trouble of the world (disk, network) is an error value and a client's mistake is
// an *amqperr.Error; neither ever comes through here.
package invariant
