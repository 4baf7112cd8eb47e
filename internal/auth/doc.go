// Package auth answers who a client is and what a name pattern lets it do.
//
// It knows SASL PLAIN and AMQPLAIN, RabbitMQ's salted password hashes, the rule that some users come from this machine
// only, and regular expressions of permissions. It keeps no users: it is given a function that looks them up. It does not
// decide which permission an operation needs, and it opens no sockets and files.
//
//	login.go     from a SASL response to an Identity, or a Refusal
//	sasl.go      reading PLAIN and AMQPLAIN responses
//	password.go  hashing and checking passwords
//	pattern.go   permissions' regular expressions, compiled once
package auth
