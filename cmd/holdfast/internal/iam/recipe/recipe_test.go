package recipe

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

var update = flag.Bool("update", false, "rewrite the recipes of the console")

// TestConsoleHasTheSameRecipes checks that the wizards of the console and of the command
// have the same recipes.
func TestConsoleHasTheSameRecipes(t *testing.T) {
	type shown struct {
		Name   string   `json:"name"`
		Title  string   `json:"title"`
		Issuer string   `json:"issuer"`
		Steps  []string `json:"steps"`
		Traps  []string `json:"traps"`
		Scopes []string `json:"scopes"`
		Groups string   `json:"groups"`
		OID    bool     `json:"oid"` // whether the object ID identifies people
	}
	var all []shown
	for _, r := range All {
		oid := r.Rule == iampb.IdentityProvider_OIDC_CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID
		all = append(all, shown{r.Name, r.Title, r.Issuer, r.Steps, r.Traps, append([]string{}, r.Scopes...), r.Groups, oid})
	}
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(all); err != nil {
		t.Fatal(err)
	}
	const file = "../../../../../console/src/areas/signin/recipes.json"
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s has other recipes: run this test with -update, then make console", file)
	}
}
