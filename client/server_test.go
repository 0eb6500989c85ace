package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/client"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/server"
)

// TestMain starts the server that the examples call and passes its address and tokens in
// environment variables. It ignores the developer's own HOLDFAST_ variables.
func TestMain(m *testing.M) {
	flag.Parse()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "HOLDFAST_") {
			_ = os.Unsetenv(name) // fails only for an invalid name
		}
	}
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(m.Run()) // starts no server, because fuzzing starts many processes, and none of them runs the examples
	}
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withServer runs tests with a server in dev mode.
func withServer(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "holdfast-client-*")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // an error only leaves the folder among the temporary files
	ctx, cancel := context.WithCancel(context.Background())
	srv, err := server.New(ctx,
		server.Config{Dev: true, Listen: "127.0.0.1:0", DataDir: dir, Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		cancel()
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	if err = introduce(ctx, dir); err == nil {
		code = run()
	}
	cancel()
	if last := <-ended; err == nil {
		err = last
	}
	return code, err
}

// introduce sets the environment variables that a program needs: the address, a token,
// and a workload that the server trusts.
func introduce(ctx context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil {
		return err
	}
	var dev struct{ BaseURL, OrganizationUID, Token, RefreshToken, TestIssuer string }
	if err := json.Unmarshal(text, &dev); err != nil {
		return err
	}
	proof, err := mint(ctx, dev.TestIssuer+"/token", map[string]string{"sub": "batch", "aud": dev.BaseURL})
	if err != nil {
		return err
	}
	identity, err := trust(ctx, dev.BaseURL, dev.Token, dev.OrganizationUID, dev.TestIssuer)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "token.jwt")
	for name, value := range map[string]string{
		"HOLDFAST_API": dev.BaseURL, "HOLDFAST_TOKEN": dev.Token, "HOLDFAST_REFRESH_TOKEN": dev.RefreshToken,
		"HOLDFAST_ORGANIZATION": dev.OrganizationUID,
		"HOLDFAST_IDENTITY":     identity, "HOLDFAST_IDENTITY_TOKEN_FILE": file,
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(proof), 0o600)
}

// mint requests a token with these claims from the test issuer.
func mint(ctx context.Context, address string, claims map[string]string) (string, error) {
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct{ Token string }
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer.Token, err
}

// trust creates a workload identity that may view the organization.
func trust(ctx context.Context, address, token, organization, issuer string) (uid string, err error) {
	c, err := client.Dial(client.Config{Address: address, Credential: client.Token(token)})
	if err != nil {
		return "", err
	}
	defer c.Close()
	match := &iampb.Identity_ClaimMatch{
		Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: issuer}, Sub: &iampb.Identity_ClaimMatch_Subject{Subject: "batch"},
	}
	identity, err := iampb.NewIdentitiesServiceClient(c).CreateIdentity(ctx, &iampb.CreateIdentityRequest{
		Parent: organization,
		Identity: &iampb.Identity{
			Name: "batch", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: match},
		},
	})
	if err != nil {
		return "", err
	}
	roles, err := iampb.NewRolesServiceClient(c).ListRoles(ctx, &iampb.ListRolesRequest{Name: "viewer"})
	if err != nil {
		return "", err
	}
	_, err = iampb.NewRoleBindingsServiceClient(c).CreateRoleBinding(ctx, &iampb.CreateRoleBindingRequest{
		Parent:      organization,
		RoleBinding: &iampb.RoleBinding{IdentityUid: identity.GetUid(), RoleUid: roles.GetRoles()[0].GetUid()},
	})
	return identity.GetUid(), err
}
