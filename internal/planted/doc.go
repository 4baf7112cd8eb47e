// Package planted lists mistakes that the rooms below the broker make on request, one at a time: a simulation that does not
// notice them proves nothing. A switch is one comparison with a variable that nothing but a test ever sets, and it
// stands where something happens once an entry, a batch, a try or a segment, or beside far dearer work, never in a
// loop over messages on a hot path.
package planted
