// Package seglog is the one log of a node: is it on disk, where, and when does the space come back.
package seglog
