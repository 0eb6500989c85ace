package signature_test

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry/signature"
	"github.com/holdfast-dev/holdfast/internal/registry/signature/signaturetest"
)

const (
	issuer  = "https://ci.example.test"
	subject = "release@example.test"
)

var image = signature.Subject{
	Digest: signaturetest.Digest([]byte(`{"schemaVersion":2}`)), Body: []byte(`{"schemaVersion":2}`),
}

func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestKeys checks for each kind of key and for both forms of cosign's signatures that a signature is verified with
// its own key, and not with another key.
func TestKeys(t *testing.T) {
	t.Parallel()
	other := must[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
	for _, kind := range []string{"ecdsa", "ecdsa-384", "rsa", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			k := must[signaturetest.Key](t)(signaturetest.NewKey(kind))
			payload := signaturetest.Payload("any.example/repo", image.Digest)
			classic := must[*signature.Signature](t)(signature.ParseCosign(payload,
				must[map[string]string](t)(k.Cosign(payload)), image.Digest))
			statement := signaturetest.Statement(image.Digest, signaturetest.SignPredicate)
			bundle := must[*signature.Signature](t)(signature.ParseBundle(must[[]byte](t)(k.Bundle(statement))))
			for name, s := range map[string]*signature.Signature{"cosign": classic, "a bundle": bundle} {
				key := must[*signature.Key](t)(signature.ParseKey(k.PEM()))
				if err := key.Verify(image, s); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				err := must[*signature.Key](t)(signature.ParseKey(other.PEM())).Verify(image, s)
				if err == nil || err.Error() != "another key has signed it" {
					t.Errorf("%s verified with another key: %v", name, err)
				}
			}
		})
	}
}

// TestBundleOfAnotherImage checks that a bundle is refused if its statement is about another image or about no image,
// or if the statement is not a signature.
func TestBundleOfAnotherImage(t *testing.T) {
	t.Parallel()
	k := must[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
	key := must[*signature.Key](t)(signature.ParseKey(k.PEM()))
	other := signaturetest.Digest([]byte("other"))
	for name, statement := range map[string][]byte{
		"about another image": signaturetest.Statement(other, signaturetest.SignPredicate),
		"that is an SBOM":     signaturetest.Statement(image.Digest, "https://spdx.dev/Document"),
		"about nothing": []byte(`{"_type":"https://in-toto.io/Statement/v1","subject":[],` +
			`"predicateType":"` + signaturetest.SignPredicate + `"}`),
		"that is no statement": []byte(`{}`),
	} {
		s := must[*signature.Signature](t)(signature.ParseBundle(must[[]byte](t)(k.Bundle(statement))))
		if key.Verify(image, s) == nil {
			t.Errorf("a statement %s counts", name)
		}
	}
}

// TestIdentities checks that Verify returns the identity in the certificate if a log or a timestamp authority that
// the root trusts confirms the time, and an error otherwise.
func TestIdentities(t *testing.T) {
	t.Parallel()
	ours := must[*signaturetest.Sigstore](t)(signaturetest.NewSigstore())
	theirs := must[*signaturetest.Sigstore](t)(signaturetest.NewSigstore())
	statement := signaturetest.Statement(image.Digest, signaturetest.SignPredicate)
	payload := signaturetest.Payload("r", image.Digest)
	tests := map[string]struct {
		by      *signaturetest.Sigstore
		without string // part that the root lacks
		proof   signaturetest.Proof
		ok      bool
	}{
		"in the log":                           {ours, "", signaturetest.Proof{}, true},
		"in the log without a timestamp":       {ours, "", signaturetest.Proof{NoStamp: true}, true},
		"without the log":                      {ours, "", signaturetest.Proof{NoLog: true}, false},
		"with a timestamp, and no log trusted": {ours, "log", signaturetest.Proof{NoLog: true}, true},
		"with neither":                         {ours, "log", signaturetest.Proof{NoLog: true, NoStamp: true}, false},
		"after the certificate has expired": {
			ours, "timestamps", signaturetest.Proof{At: time.Now().Add(20 * time.Minute), NoStamp: true}, false,
		},
		"in the log of others": {ours, "", signaturetest.Proof{OtherLogs: theirs}, false},
		"certified by others":  {theirs, "", signaturetest.Proof{}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := must[*signature.Root](t)(signature.ParseRoot([]byte(must[string](t)(ours.Root(tt.without)))))
			bundle := must[[]byte](t)(tt.by.Bundle(subject, issuer, statement, tt.proof))
			annotations := must[map[string]string](t)(tt.by.Cosign(subject, issuer, payload, tt.proof))
			for form, s := range map[string]*signature.Signature{
				"a bundle": must[*signature.Signature](t)(signature.ParseBundle(bundle)),
				"cosign":   must[*signature.Signature](t)(signature.ParseCosign(payload, annotations, image.Digest)),
			} {
				who, err := root.Verify(image, s)
				if (err == nil) != tt.ok || tt.ok && who != (signature.Identity{Issuer: issuer, Subject: subject}) {
					t.Errorf("%s: %+v, %v", form, who, err)
				}
				if err != nil && (strings.Contains(err.Error(), "%!") || strings.Contains(err.Error(), "threshold")) {
					t.Errorf("%s: the reason is not for people: %v", form, err)
				}
			}
		})
	}
}

// TestCosignTampered checks that a signature is refused if any part of it was changed.
func TestCosignTampered(t *testing.T) {
	t.Parallel()
	s := must[*signaturetest.Sigstore](t)(signaturetest.NewSigstore())
	root := must[*signature.Root](t)(signature.ParseRoot([]byte(must[string](t)(s.Root()))))
	payload := signaturetest.Payload("r", image.Digest)
	good := must[map[string]string](t)(s.Cosign(subject, issuer, payload, signaturetest.Proof{}))
	more := must[map[string]string](t)(s.Cosign("mallory@example.test", issuer, payload, signaturetest.Proof{}))
	another := signaturetest.Payload("r", signaturetest.Digest([]byte("other")))
	tests := map[string]func(a map[string]string) (payload []byte, digest string){
		"a payload about another image": func(map[string]string) ([]byte, string) { return another, image.Digest },
		"for another image": func(map[string]string) ([]byte, string) {
			return payload, signaturetest.Digest([]byte("other"))
		},
		"a payload that was changed": func(map[string]string) ([]byte, string) {
			return signaturetest.Payload("changed", image.Digest), image.Digest
		},
		"a payload of another type": func(map[string]string) ([]byte, string) {
			return []byte(strings.Replace(string(payload), "container image signature", "receipt", 1)), image.Digest
		},
		"the certificate of another": func(a map[string]string) ([]byte, string) {
			a["dev.sigstore.cosign/certificate"] = more["dev.sigstore.cosign/certificate"]
			return payload, image.Digest
		},
		"the entry of another": func(a map[string]string) ([]byte, string) {
			a["dev.sigstore.cosign/bundle"] = more["dev.sigstore.cosign/bundle"]
			return payload, image.Digest
		},
		"another time in the entry": func(a map[string]string) ([]byte, string) {
			var b struct {
				SignedEntryTimestamp []byte
				Payload              map[string]any
			}
			if err := json.Unmarshal([]byte(a["dev.sigstore.cosign/bundle"]), &b); err != nil {
				t.Fatal(err)
			}
			b.Payload["integratedTime"] = time.Now().Unix() + 1
			text, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			a["dev.sigstore.cosign/bundle"] = string(text)
			return payload, image.Digest
		},
		"no signature": func(a map[string]string) ([]byte, string) {
			a["dev.cosignproject.cosign/signature"] = ""
			return payload, image.Digest
		},
		"a signature that is too large": func(a map[string]string) ([]byte, string) {
			a["dev.cosignproject.cosign/signature"] = strings.Repeat("A", 64<<10)
			return payload, image.Digest
		},
	}
	for name, change := range tests {
		a := map[string]string{}
		for k, v := range good {
			a[k] = v
		}
		body, digest := change(a)
		sig, err := signature.ParseCosign(body, a, digest)
		if err != nil {
			continue
		}
		if who, err := root.Verify(signature.Subject{Digest: digest, Body: image.Body}, sig); err == nil {
			t.Errorf("with %s, %+v has signed it", name, who)
		}
	}
}

// TestPayloadOfAnotherType checks that a payload which was signed for another purpose is not accepted as a signature of
// an image.
func TestPayloadOfAnotherType(t *testing.T) {
	t.Parallel()
	k := must[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
	payload := []byte(strings.Replace(string(signaturetest.Payload("r", image.Digest)), "container image signature",
		"receipt", 1))
	if _, err := signature.ParseCosign(payload, must[map[string]string](t)(k.Cosign(payload)), image.Digest); err == nil {
		t.Error("it is one")
	}
}

// TestTrustIsChecked checks that a text which is not a public key, and a root that cannot verify anything, are
// refused with a reason. The reason must not contain any part of a private key.
func TestTrustIsChecked(t *testing.T) {
	t.Parallel()
	s := must[*signaturetest.Sigstore](t)(signaturetest.NewSigstore())
	for want, text := range map[string]string{
		"is not a public key in PEM": "hello",
		"is a private key":           "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
		"is a certificate":           "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"more than one":              strings.Repeat(must[signaturetest.Key](t)(signaturetest.NewKey("ecdsa")).PEM(), 2),
		"at most":                    strings.Repeat("x", 10_000),
	} {
		_, err := signature.ParseKey(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("a key: %v, want %q", err, want)
		}
	}
	for want, without := range map[string][]string{
		"neither":      {"log", "timestamps"},
		"no certifica": {"authority"},
	} {
		_, err := signature.ParseRoot([]byte(must[string](t)(s.Root(without...))))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a root without %v: %v", without, err)
		}
	}
	if _, err := signature.ParseRoot([]byte(`{}`)); err == nil {
		t.Error("an empty root is one")
	}
}

// TestLargeKeyInEntry checks that a log entry with a large key is refused, because the key would be used before it is
// trusted.
func TestLargeKeyInEntry(t *testing.T) {
	t.Parallel()
	body := largeEntry(t, 1<<16)
	text, err := json.Marshal(map[string]any{
		"mediaType": signaturetest.BundleType,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "x"}, "tlogEntries": []any{map[string]any{
			"logIndex": "1", "logId": map[string]any{"keyId": "AAAA"},
			"kindVersion":      map[string]any{"kind": "hashedrekord", "version": "0.0.1"},
			"inclusionPromise": map[string]any{"signedEntryTimestamp": "AAAA"}, "canonicalizedBody": body,
		}}},
		"messageSignature": map[string]any{
			"messageDigest": map[string]any{"algorithm": "SHA2_256", "digest": "AAAA"}, "signature": "AAAA",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signature.ParseBundle(text); err == nil || !strings.Contains(err.Error(), "the entry of a log has more") {
		t.Errorf("it is read: %v", err)
	}
}

// largeEntry returns a log entry in base64 that has a signature by an RSA key with the given number of bits.
func largeEntry(t *testing.T, bits uint) string {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), bits)
	key := rsaPEM(t, n.Sub(n, big.NewInt(1)))
	entry, err := json.Marshal(map[string]any{"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": map[string]any{
		"data": map[string]any{"hash": map[string]any{"algorithm": "sha256", "value": strings.Repeat("a", 64)}},
		"signature": map[string]any{"content": base64.StdEncoding.EncodeToString(make([]byte, bits/8)),
			"publicKey": map[string]any{"content": base64.StdEncoding.EncodeToString([]byte(key))}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(entry)
}

// fuzzRoots returns a root, and a Sigstore that the root does not trust.
func fuzzRoots(f *testing.F) (*signature.Root, *signaturetest.Sigstore) {
	f.Helper()
	trusted, err := signaturetest.NewSigstore()
	if err != nil {
		f.Fatal(err)
	}
	theirs, err := signaturetest.NewSigstore()
	if err != nil {
		f.Fatal(err)
	}
	text, err := trusted.Root()
	if err != nil {
		f.Fatal(err)
	}
	root, err := signature.ParseRoot([]byte(text))
	if err != nil {
		f.Fatal(err)
	}
	return root, theirs
}

// FuzzBundle checks that no input is accepted as a valid bundle of a trusted identity, and that none makes the parser
// panic.
func FuzzBundle(f *testing.F) {
	root, theirs := fuzzRoots(f)
	seed, err := theirs.Bundle(subject, issuer, signaturetest.Statement(image.Digest, signaturetest.SignPredicate),
		signaturetest.Proof{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json",` +
		`"verificationMaterial":{"tlogEntries":[null,{}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		sig, err := signature.ParseBundle(text)
		if err != nil {
			return
		}
		if who, err := root.Verify(image, sig); err == nil {
			t.Errorf("%+v has signed it", who)
		}
	})
}

// FuzzCosign checks that no input is accepted as a valid cosign signature of a trusted identity, and that none makes
// the parser panic.
func FuzzCosign(f *testing.F) {
	root, theirs := fuzzRoots(f)
	payload := signaturetest.Payload("r", image.Digest)
	a, err := theirs.Cosign(subject, issuer, payload, signaturetest.Proof{})
	if err != nil {
		f.Fatal(err)
	}
	names := []string{
		"dev.cosignproject.cosign/signature", "dev.sigstore.cosign/certificate", "dev.sigstore.cosign/bundle",
		"dev.sigstore.cosign/rfc3161timestamp",
	}
	f.Add(payload, a[names[0]], a[names[1]], a[names[2]], a[names[3]])
	f.Fuzz(func(t *testing.T, payload []byte, sig, certificate, bundle, stamp string) {
		parsed, err := signature.ParseCosign(payload,
			map[string]string{names[0]: sig, names[1]: certificate, names[2]: bundle, names[3]: stamp}, image.Digest)
		if err != nil {
			return
		}
		if who, err := root.Verify(image, parsed); err == nil {
			t.Errorf("%+v has signed it", who)
		}
	})
}

// rsaPEM returns an RSA public key with the modulus n, in PEM.
func rsaPEM(t *testing.T, n *big.Int) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n, E: 1<<31 - 1})
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
