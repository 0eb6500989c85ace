package password

import (
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccojocar/zxcvbn-go"
	"github.com/ccojocar/zxcvbn-go/frequency"
)

// TestPasswordsThatAreGuessed: passwords that are easy to guess are refused with the reason. The estimate of a long
// password does not take long.
func TestPasswordsThatAreGuessed(t *testing.T) {
	tests := map[string]bool{
		"password1234": false, "Password1234!": false, "qwertyuiop12": false, "123456789012": false,
		"letmein123456": false, "iloveyou2026": false, "abcabcabcabc": false, "olga.owner12": false,
		"holdfast12345": false, "acmeacmeacme": false, "P@ssw0rd12345": false, "december2026!": false,
		"19.12.1999-olga": false, "olga19121999": false, "1999/12/19 acme": false, "Müller Müller": false,
		"correct horse battery": true, "nine unrelated words": true, "violet anchor seven": true,
		"kX9#mQ2$vL7p": true, "two yellow submarines": true, "Übergrößenträger-37": true,
	}
	for password, good := range tests {
		err := Check(password, "olga.owner@acme.example", "Olga Owner", "acme", "Müller")
		if good != (err == nil) {
			t.Errorf("%q: %v", password, err)
		}
		if err != nil && !strings.Contains(err.Error(), "easy to guess") {
			t.Errorf("%q is refused with %v", password, err)
		}
	}
	began := time.Now()
	_ = Check(strings.Repeat("aA1!password qwerty ", 25), "olga@acme.example")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("a long password takes %s", took)
	}
}

// TestStrengthIsThatOfZxcvbn: every password that zxcvbn refuses is refused. The test uses passwords of common words,
// names and keys, combined as people combine them. This package may refuse more passwords, because zxcvbn misses dates
// at the end of a password.
func TestStrengthIsThatOfZxcvbn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	known := []string{"holdfast", "olga@acme.example", "olga"}
	differ := 0
	const tries = 100
	for range tries {
		password := likelyPassword(r)
		ours, theirs := strength(password, known), zxcvbn.PasswordStrength(password, known).Score
		if ours >= minScore && theirs < minScore {
			t.Errorf("%q is taken, with %d; zxcvbn says %d", password, ours, theirs)
		}
		if (ours >= minScore) != (theirs >= minScore) {
			differ++
		}
	}
	if differ > tries/20 {
		t.Errorf("%d of %d are judged in another way", differ, tries)
	}
}

// likelyPassword returns a password like those that people choose.
func likelyPassword(r *rand.Rand) string {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	list := func(name string) string { return pick(frequency.Lists[name].List[:1000]...) }
	var b strings.Builder
	for range 2 + r.IntN(3) {
		word := pick(list("Passwords"), list("English"), list("MaleNames"), list("Surname"), "qwerty", "asdfgh", "olga",
			"!@#$%", "123456", "aaaa", "987", "zxcvb", "2001", "3112", "xK9", "Ü", "Holdfast", " ")
		switch r.IntN(4) {
		case 0:
			word = strings.ToUpper(word)
		case 1:
			word = strings.NewReplacer("a", "@", "o", "0", "i", "1", "e", "3", "s", "$").Replace(word)
		}
		b.WriteString(word)
	}
	return b.String()
}

// TestWordsAreReadWhenNeeded: a process that checks no password reads no word list. Only tests may import the
// packages of zxcvbn that read word lists when a process starts.
func TestWordsAreReadWhenNeeded(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../../cmd/holdfastd").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, reads := range []string{"matching", "frequency"} {
		if slices.Contains(strings.Fields(string(out)), "github.com/ccojocar/zxcvbn-go/"+reads) {
			t.Errorf("the server has zxcvbn-go/%s, which reads all words when it starts", reads)
		}
	}
}
