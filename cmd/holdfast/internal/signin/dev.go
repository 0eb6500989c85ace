package signin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
)

// A DevFile is the file that a server in development mode writes for programs on its
// machine.
type DevFile struct {
	BaseURL         string `json:"baseUrl"`
	AuthURL         string `json:"authUrl"`
	RegistryHost    string `json:"registryHost"`
	OrganizationUID string `json:"organizationUid"`
	Token           string `json:"token"`
	TestIssuer      string `json:"testIssuer"`
}

func readDevFile(path string) (dev DevFile, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return dev, problem.Usage("%v", err).Hint("holdfastd --dev writes this file into its data folder")
	}
	// The decoder's error is not returned, because it may quote the token.
	if json.Unmarshal(text, &dev) != nil || holdfast.CheckAddress(dev.BaseURL) != nil || !holdfast.IsToken(dev.Token) {
		return dev, problem.Usage("%s was not written by holdfastd --dev", path)
	}
	dev.AuthURL = cmp.Or(dev.AuthURL, dev.BaseURL)
	return dev, nil
}

// UseDev sets the settings for the server that wrote the DevFile, and begins a session
// there.
func (a *Agent) UseDev(ctx context.Context, path string) error {
	dev, err := readDevFile(path)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	s, err := a.signIn(dev.BaseURL)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, session{Issuer: dev.AuthURL, DevFile: path}, tokens{Access: dev.Token}); err != nil {
		return err
	}
	err = settings.Change(func(values map[string]string) {
		values["api"] = dev.BaseURL
		values["organization"] = dev.OrganizationUID
		delete(values, "issuer") // the setting may contain the issuer of the previous server
		delete(values, "registry")
		if dev.AuthURL != dev.BaseURL {
			values["issuer"] = dev.AuthURL
		}
		if dev.RegistryHost != hostOf(dev.BaseURL) {
			values["registry"] = dev.RegistryHost
		}
	})
	if err != nil {
		return err
	}
	a.Note("using %s", dev.BaseURL)
	return nil
}

// DevServer reads the file of a server in development mode: the given file, the file of
// the session, or data/dev.json in the current folder.
func (a *Agent) DevServer(file string) (DevFile, error) {
	api, err := a.Value("api")
	if err != nil {
		return DevFile{}, err
	}
	if file == "" && api.Text != "" {
		s, err := a.signIn(api.Text)
		if err != nil {
			return DevFile{}, err
		}
		file = s.DevFile
	}
	dev, err := readDevFile(cmp.Or(file, "data/dev.json"))
	if err == nil && dev.TestIssuer == "" {
		err = problem.Usage("the server in development mode has no test issuer")
	}
	return dev, err
}

// Mint returns a token that the test issuer has signed, with the given claims.
func (a *Agent) Mint(ctx context.Context, issuer string, claims map[string]any) (string, error) {
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, issuer+"/token", bytes.NewReader(body))
	if err != nil {
		return "", errors.New("the address of the test issuer is invalid")
	}
	resp, err := transmit(&tls.Config{MinVersion: tls.VersionTLS12}, req)
	if err != nil {
		return "", problem.New(problem.ExitUnreachable, "ask %s for a token: %v", issuer, err)
	}
	defer func() { _ = resp.Body.Close() }() // an error of Close does not matter, because the body was read
	var answer struct{ Token string }
	if json.NewDecoder(io.LimitReader(resp.Body, maxIssuerAnswer)).Decode(&answer) != nil || answer.Token == "" {
		return "", problem.New(problem.ExitUnreachable, "ask %s for a token: it answers %s", issuer, resp.Status)
	}
	return answer.Token, nil
}
