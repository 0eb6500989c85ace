package transfer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

var helperName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// hubKey is the key of Docker Hub in docker's settings.
const hubKey = "https://index.docker.io/v1/"

// Login returns docker's user name and password for a registry, or "" if it has none.
func Login(ctx context.Context, host string) (user, pass string, _ error) {
	if host == "docker.io" || host == "index.docker.io" {
		host = hubKey
	}
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", "", err
		}
		dir = filepath.Join(home, ".docker")
	}
	file := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	var config struct {
		Auths       map[string]struct{ Auth string }
		CredHelpers map[string]string
		CredsStore  string
	}
	if json.Unmarshal(text, &config) != nil { // the error is not returned, because it may quote a password
		return "", "", problem.Usage("%s does not have docker's format", file)
	}
	helper := config.CredHelpers[host]
	if helper == "" {
		helper = config.CredsStore
	}
	if helper != "" {
		if !helperName.MatchString(helper) {
			return "", "", problem.Usage("%s contains an invalid name of a credential helper", file)
		}
		return askHelper(ctx, helper, host)
	}
	plain, err := base64.StdEncoding.DecodeString(config.Auths[host].Auth)
	if err != nil {
		return "", "", problem.Usage("%s: the password of %s does not have docker's format", file, host)
	}
	user, pass, _ = strings.Cut(string(plain), ":")
	return user, pass, nil
}

// askHelper asks a credential helper of docker for a password. It returns no error if the
// helper has none.
func askHelper(ctx context.Context, helper, host string) (user, pass string, _ error) {
	cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
	cmd.Stdin = strings.NewReader(host)
	out, err := cmd.Output()
	if err != nil {
		return "", "", nil
	}
	var got struct{ Username, Secret string }
	if json.Unmarshal(out, &got) != nil {
		return "", "", problem.Usage("docker-credential-%s does not answer as docker expects", helper)
	}
	return got.Username, got.Secret, nil
}
