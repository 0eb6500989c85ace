// Package secret encrypts secrets that are stored in the database, and derives
// keys for other purposes from the one key of an installation.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const keySize = 32

// These are the purposes for which secrets in the database are encrypted.
const (
	ForSigningKeys      = "signing key"
	ForClientSecrets    = "client secret"
	ForOneTimePasswords = "one-time passwords"
	ForMail             = "mail"
	ForUpstreams        = "upstream"
	ForRevisions        = "organization revision" // in the hands of clients
)

// A Key is the master key of an installation. Anyone who has it and the database
// can act as the service.
type Key struct{ master [keySize]byte }

// NewKey returns a random key.
func NewKey() Key {
	var k Key
	rand.Read(k.master[:]) // Read never returns an error
	return k
}

// ParseKey parses the output of Text.
func ParseKey(text string) (Key, error) {
	var k Key
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(b) != keySize {
		return k, errors.New("an encryption key is 32 bytes in base64")
	}
	copy(k.master[:], b)
	return k, nil
}

// Text returns the key in base64, for files and settings.
func (k Key) Text() string { return base64.StdEncoding.EncodeToString(k.master[:]) }

// Format implements fmt.Formatter. It hides the key from logs for every verb.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(key)") }

// Derive returns the 32-byte key for a purpose.
func (k Key) Derive(purpose string) []byte {
	b, err := hkdf.Key(sha256.New, k.master[:], nil, "holdfast "+purpose, keySize)
	if err != nil {
		panic(err) // only if the requested length is absurd
	}
	return b
}

// Seal encrypts plain. Open needs the same purpose to decrypt it.
func (k Key) Seal(purpose string, plain []byte) []byte {
	return k.aead(purpose).Seal(nil, nil, plain, nil)
}

// Open decrypts the output of Seal. It fails if the key or the purpose differs, or
// if the input was changed.
func (k Key) Open(purpose string, sealed []byte) ([]byte, error) {
	plain, err := k.aead(purpose).Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, fmt.Errorf("unseal %s: it was sealed with another encryption key, or damaged", purpose)
	}
	return plain, nil
}

func (k Key) aead(purpose string) cipher.AEAD {
	block, err := aes.NewCipher(k.Derive("seal " + purpose))
	if err != nil {
		panic(err) // only if the key has another size
	}
	a, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return a
}
