package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// previousSchema returns the number of the last migration in the previous version.
// That version must be able to serve the current schema. The file PREVIOUS contains
// the number, with the commit of the version.
func previousSchema(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("../../PREVIOUS")
	testkit.Must(t, err)
	m := regexp.MustCompile(`(?m)^schema (\d+)$`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("PREVIOUS names no schema")
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	testkit.Must(t, err)
	return n
}

// tightens matches statements that may break a program that worked before.
var tightens = regexp.MustCompile(`(?is)\b(DROP\s+(TABLE|COLUMN|CONSTRAINT)|RENAME|` +
	`SET\s+NOT\s+NULL|ALTER\s+COLUMN|ADD\s+(CONSTRAINT|CHECK|FOREIGN|UNIQUE))\b`)

// unused matches the comment that says since which schema nothing uses the
// table or column that a statement removes.
var unused = regexp.MustCompile(`-- unused since schema (\d+)`)

// TestMigrationsExpand checks that a migration removes or requires nothing that the
// previous version uses, because the previous version serves the same database during
// an upgrade and after a downgrade.
func TestMigrationsExpand(t *testing.T) {
	before := previousSchema(t)
	files, err := filepath.Glob("schema/*.sql")
	testkit.Must(t, err)
	for _, file := range files {
		number, err := strconv.ParseInt(filepath.Base(file)[:4], 10, 64)
		testkit.Must(t, err)
		if number <= before {
			continue
		}
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		for _, why := range breaks(string(text), before) {
			t.Errorf("%s: %s", file, why)
		}
	}
}

var (
	addsColumn  = regexp.MustCompile(`(?is)\bADD\s+COLUMN\b.*\bNOT\s+NULL\b`)
	hasDefault  = regexp.MustCompile(`(?is)\bDEFAULT\b`)
	uniqueIndex = regexp.MustCompile(`(?is)\bCREATE\s+UNIQUE\s+INDEX\s+\w+\s+ON\s+(\w+)`)
	newTable    = regexp.MustCompile(`(?is)\bCREATE\s+TABLE\s+(\w+)`)
	refusesLess = regexp.MustCompile(`-- refuses less than (\w+)`)
	raises      = regexp.MustCompile(`(?is)\bschema_needs\s+SET\s+version\s*=\s*(\d+)`)
)

// breaks returns the reasons why a version that knows only the schema before
// cannot serve a database after a migration.
func breaks(text string, before int64) (all []string) {
	made := map[string]bool{}
	for _, m := range newTable.FindAllStringSubmatch(text, -1) {
		made[m[1]] = true
	}
	for _, statement := range strings.Split(text, ";") {
		short := strings.Join(strings.Fields(statement), " ")
		if m := unused.FindStringSubmatch(statement); m != nil {
			if n, _ := strconv.ParseInt(m[1], 10, 64); n <= before {
				continue
			}
		}
		if m := raises.FindStringSubmatch(statement); m != nil {
			if n, _ := strconv.ParseInt(m[1], 10, 64); n > before {
				all = append(all, "no version but this one could serve it: "+short)
			}
		}
		index := uniqueIndex.FindStringSubmatch(statement)
		if m := refusesLess.FindStringSubmatch(statement); m != nil && strings.Contains(text, "DROP INDEX "+m[1]+";") {
			index = nil // the index replaces another one
		}
		if tightens.MatchString(statement) || addsColumn.MatchString(statement) && !hasDefault.MatchString(statement) ||
			index != nil && !made[index[1]] {
			all = append(all, "the version before may fail after this, unless a comment says since when it is unused: "+short)
		}
	}
	return all
}

// TestBreaks checks which statements breaks finds.
func TestBreaks(t *testing.T) {
	for text, want := range map[string]int{
		`CREATE TABLE a (b BIGINT NOT NULL); CREATE UNIQUE INDEX c ON a (b);`:    0,
		`ALTER TABLE a ADD COLUMN b TEXT NOT NULL DEFAULT '';`:                   0,
		`ALTER TABLE a ADD COLUMN b TEXT NOT NULL;`:                              1,
		`CREATE UNIQUE INDEX c ON a (b);`:                                        1,
		`CREATE INDEX c ON a (b); DROP INDEX d;`:                                 0,
		"DROP INDEX d;\n-- refuses less than d\nCREATE UNIQUE INDEX c ON a (b);": 0,
		"-- refuses less than d\nCREATE UNIQUE INDEX c ON a (b);":                1,
		`DROP TABLE a;`:                1,
		`ALTER TABLE a DROP COLUMN b;`: 1,
		"-- unused since schema 20\nALTER TABLE a DROP COLUMN b;": 0,
		"-- unused since schema 21\nALTER TABLE a DROP COLUMN b;": 1,
		`ALTER TABLE a RENAME TO b;`:                              1,
		`UPDATE schema_needs SET version = 20;`:                   0,
		`UPDATE schema_needs SET version = 21;`:                   1,
	} {
		if got := breaks(text, 20); len(got) != want {
			t.Errorf("%s: %v, want %d", text, got, want)
		}
	}
}
