package auth

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"

	"holdfast/internal/catalog"
)

// The hashing algorithms by the names that RabbitMQ's definitions files have for them.
const (
	// Algorithm is the one new passwords are hashed with.
	Algorithm = "rabbit_password_hashing_sha256"

	sha512Algorithm = "rabbit_password_hashing_sha512"
	md5Algorithm    = "rabbit_password_hashing_md5" // of RabbitMQ before 3.6; what no name stands for
)

// saltSize is the size of the salt a hash starts with.
const saltSize = 4

// HashPassword returns a hash of the password with a new salt: base64 of the salt and the SHA-256 of salt and password,
// what RabbitMQ calls password_hash.
func HashPassword(password string) string {
	var salt [saltSize]byte
	rand.Read(salt[:]) // never fails
	return hashWithSalt(salt[:], password)
}

func hashWithSalt(salt []byte, password string) string {
	return base64.StdEncoding.EncodeToString(append(salt[:saltSize:saltSize], digest(Algorithm, salt, password)...))
}

// digest returns nil for an algorithm it does not know.
func digest(algorithm string, salt []byte, password string) []byte {
	salted := append(salt[:saltSize:saltSize], password...)
	switch algorithm {
	case Algorithm:
		sum := sha256.Sum256(salted)
		return sum[:]
	case sha512Algorithm:
		sum := sha512.Sum512(salted)
		return sum[:]
	case md5Algorithm, "":
		sum := md5.Sum(salted)
		return sum[:]
	}
	return nil
}

// nobody is checked where there is no user, so that a wrong name takes as long as a wrong password.
var nobody = &catalog.User{Hash: base64.StdEncoding.EncodeToString(make([]byte, saltSize+sha256.Size)), Algorithm: Algorithm}

// CheckPassword reports whether the password is the user's. A user without a hash and an empty password never fit. The
// time it takes tells nothing about how much of a password is right; u may be nil.
func CheckPassword(u *catalog.User, password string) bool {
	known := u != nil && u.Hash != "" && password != ""
	if !known {
		u = nobody
	}
	hash, err := base64.StdEncoding.DecodeString(u.Hash)
	if err != nil || len(hash) <= saltSize {
		return false
	}
	sum := digest(u.Algorithm, hash[:saltSize], password)
	return subtle.ConstantTimeCompare(sum, hash[saltSize:]) == 1 && known
}
