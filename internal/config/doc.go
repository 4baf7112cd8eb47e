// Package config holds what an operator can decide: one struct with every setting, its default, its unit and its
// check, and the reader of the configuration file.
//
// The file has RabbitMQ's form, `key = value`, and its key names where the meaning is the same. A key that RabbitMQ
// knows and this broker does not use is a warning; an unknown key is an error that names the nearest known one. All
// problems of a file are reported at once, each with file and line.
//
// The package never starts anything, never reads the environment, and never changes a setting after the start: whoever
// gets a *Settings treats it as constant.
//
// Map:
//
//	settings.go   the struct Settings, its defaults, and what follows from several settings together
//	table.go      the table: one row a setting, with key, unit, sentence and check
//	value.go      how the text of a value is read and written: numbers, durations, sizes, switches, lists
//	parse.go      the configuration file
//	problem.go    problems with their place, and the list of them
//	known.go      keys of RabbitMQ that are understood but not used here, with the reason
//	nearest.go    the nearest known key for a misspelt one
//	tls.go        certificates and keys, loaded and checked
//	reference.go  the page docs/configuration.md and the effective settings as text
package config
