package secret_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

func TestOpenReturnsWhatWasSealed(t *testing.T) {
	k := secret.NewKey()
	// There is no text of one byte, because the sealed text could contain that byte by chance.
	for _, plain := range []string{"", "a few words", strings.Repeat("long ", 10_000)} {
		sealed := k.Seal("letters", []byte(plain))
		if plain != "" && bytes.Contains(sealed, []byte(plain)) {
			t.Errorf("the %d bytes are readable in what was sealed", len(plain))
		}
		got, err := k.Open("letters", sealed)
		if err != nil || string(got) != plain {
			t.Errorf("Open(Seal(%d bytes)) = %d bytes, %v", len(plain), len(got), err)
		}
	}
}

func TestSealNeverRepeatsItself(t *testing.T) {
	k := secret.NewKey()
	if bytes.Equal(k.Seal("letters", []byte("same")), k.Seal("letters", []byte("same"))) {
		t.Error("the same words were sealed to the same bytes")
	}
}

func TestOpenRefuses(t *testing.T) {
	k := secret.NewKey()
	sealed := k.Seal("letters", []byte("secret"))
	tests := map[string]struct {
		key     secret.Key
		purpose string
		sealed  []byte
	}{
		"another key":      {secret.NewKey(), "letters", sealed},
		"the zero key":     {secret.Key{}, "letters", sealed},
		"another purpose":  {k, "numbers", sealed},
		"nothing":          {k, "letters", nil},
		"a part":           {k, "letters", sealed[:len(sealed)-1]},
		"more than it was": {k, "letters", append(bytes.Clone(sealed), 0)},
		"the plain text":   {k, "letters", []byte("secret")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plain, err := tt.key.Open(tt.purpose, tt.sealed)
			if err == nil {
				t.Fatalf("opened to %q", plain)
			}
			if strings.Contains(err.Error(), k.Text()) || strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells: %v", err)
			}
		})
	}
}

func TestOpenRefusesEveryChangedBit(t *testing.T) {
	k := secret.NewKey()
	sealed := k.Seal("letters", []byte("secret"))
	for bit := range 8 * len(sealed) {
		changed := bytes.Clone(sealed)
		changed[bit/8] ^= 1 << (bit % 8)
		if _, err := k.Open("letters", changed); err == nil {
			t.Fatalf("bit %d can be changed", bit)
		}
	}
}

func TestDeriveSeparatesPurposesAndKeys(t *testing.T) {
	k, other := secret.NewKey(), secret.NewKey()
	a := k.Derive("a")
	if len(a) != 32 || !bytes.Equal(a, k.Derive("a")) {
		t.Errorf("Derive gave %d bytes, or others the second time", len(a))
	}
	if bytes.Equal(a, k.Derive("b")) || bytes.Equal(a, other.Derive("a")) {
		t.Error("another purpose or key derives the same bytes")
	}
}

func TestKeyText(t *testing.T) {
	k := secret.NewKey()
	for _, text := range []string{k.Text(), "  " + k.Text() + "\n"} {
		if got, err := secret.ParseKey(text); err != nil || got != k {
			t.Errorf("ParseKey(%q) is another key, or %v", text, err)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "short": "c2hvcnQ=", "not base64": "!" + k.Text()[1:], "long": k.Text() + k.Text(),
		"hexadecimal": fmt.Sprintf("%x", k.Derive("a")),
	} {
		if _, err := secret.ParseKey(text); err == nil || len(text) > 0 && strings.Contains(err.Error(), text) {
			t.Errorf("%s: error = %v, want one that does not tell the key", name, err)
		}
	}
}

func TestKeyHidesFromLogs(t *testing.T) {
	k := secret.NewKey()
	for _, verb := range []string{"%v", "%s", "%+v", "%q", "%x"} {
		if got := strings.Trim(fmt.Sprintf(verb, k), `"`); got != "(key)" && got != fmt.Sprintf("%x", "(key)") {
			t.Errorf("%s shows %s", verb, got)
		}
	}
}
