package server_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
)

// TestNameOfRenamedOrganization: the name of a renamed organization cannot be used over
// the API until the operator releases it. A server that creates the organization of its
// settings still starts.
func TestNameOfRenamedOrganization(t *testing.T) {
	cfg := server.Config{Dev: true, DataDir: t.TempDir()}
	r := start(t, cfg)
	var dev struct{ Token, OrganizationUID string }
	text, err := os.ReadFile(filepath.Join(cfg.DataDir, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dev); err != nil {
		t.Fatal(err)
	}
	const groups = "/iam/v2beta1/groups"
	bearer := []string{"Authorization", "Bearer " + dev.Token}
	create := func(name string) (*http.Response, string) {
		return r.send(t, http.MethodPost, groups, `{"name":"`+name+`"}`, bearer...)
	}
	if resp, body := create("acme"); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if resp, body := r.send(t, http.MethodPatch, groups+"/"+dev.OrganizationUID+"?updateMask=name",
		`{"name":"dev2"}`, bearer...); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	reserved, reservedBody := create("dev")
	used, usedBody := create("acme")
	requestID := regexp.MustCompile(`"requestId":"[^"]*"`)
	same := requestID.ReplaceAllString(strings.ReplaceAll(reservedBody, "dev", "acme"), "") ==
		requestID.ReplaceAllString(usedBody, "")
	if reserved.StatusCode != http.StatusConflict || used.StatusCode != http.StatusConflict || !same {
		t.Errorf("reserved: %d %s\nin use: %d %s", reserved.StatusCode, reservedBody, used.StatusCode, usedBody)
	}
	var out bytes.Buffer
	if err := server.RunCommand(t.Context(), cfg, []string{"organizations", "release", "dev"}, &out); err != nil ||
		out.String() != "dev\n" {
		t.Errorf("release: %q, %v", out.String(), err)
	}
	if err := server.RunCommand(t.Context(), cfg, []string{"organizations", "release", "dev"}, &out); err == nil {
		t.Error("a name that is not reserved was released")
	}
	if resp, body := create("dev"); resp.StatusCode != http.StatusOK {
		t.Errorf("after the release: %d %s", resp.StatusCode, body)
	}
	if resp, body := r.send(t, http.MethodPatch, groups+"/"+dev.OrganizationUID+"?updateMask=name",
		`{"name":"dev3"}`, bearer...); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	r.stop(t)
	start(t, cfg).stop(t)
}
