package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
)

// dockerConfig is the file where docker and its like look for passwords. Only
// what is needed here is read; the rest stays as it is.
type dockerConfig struct {
	path string
	all  map[string]json.RawMessage
}

var safeName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// saveDocker puts a pull token where docker and its like look, and takes the
// password out of what is shown.
func saveDocker(ctx context.Context, a *noun.App, t *pullToken) error {
	c, err := readDockerConfig()
	if err != nil {
		return err
	}
	helper, err := c.helper(t.Registry)
	if err != nil {
		return err
	}
	place := c.path
	if helper != "" {
		place = "docker-credential-" + helper
		err = storeWithHelper(ctx, place, *t)
	} else {
		err = c.store(*t)
	}
	if err != nil {
		return err
	}
	t.Password = ""
	a.Note("saved for %s in %s", t.Registry, place)
	return nil
}

func readDockerConfig() (dockerConfig, error) {
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return dockerConfig{}, err
		}
		dir = filepath.Join(home, ".docker")
	}
	c := dockerConfig{path: filepath.Join(dir, "config.json"), all: map[string]json.RawMessage{}}
	text, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if json.Unmarshal(text, &c.all) != nil || c.all == nil { // an error may quote a password
		return c, problem.Usage("%s is not a JSON object", c.path)
	}
	return c, nil
}

// helper is the program that keeps the passwords of a registry; "" if the file
// does.
func (c dockerConfig) helper(registry string) (string, error) {
	helpers, name := map[string]string{}, ""
	if err := c.get("credHelpers", &helpers); err != nil {
		return "", err
	}
	if err := c.get("credsStore", &name); err != nil {
		return "", err
	}
	if own := helpers[registry]; own != "" {
		name = own
	}
	if name != "" && !safeName.MatchString(name) {
		return "", problem.Usage("%s names a program that cannot be one", c.path)
	}
	return name, nil
}

func (c dockerConfig) get(key string, v any) error {
	if text, ok := c.all[key]; ok && json.Unmarshal(text, v) != nil {
		return problem.Usage("%s: %s is not as docker writes it", c.path, key)
	}
	return nil
}

// store puts the password into the file itself.
func (c dockerConfig) store(t pullToken) error {
	auths := map[string]json.RawMessage{}
	if err := c.get("auths", &auths); err != nil {
		return err
	}
	if auths == nil {
		auths = map[string]json.RawMessage{}
	}
	entry := map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(t.Username + ":" + t.Password))}
	var err error
	if auths[t.Registry], err = json.Marshal(entry); err != nil {
		return err
	}
	return c.put("auths", auths)
}

// put writes the file with another value of a key.
func (c dockerConfig) put(key string, v any) (err error) {
	if c.all[key], err = json.Marshal(v); err != nil {
		return err
	}
	text, err := json.MarshalIndent(c.all, "", "\t")
	if err != nil {
		return err
	}
	return settings.WritePrivate(c.path, append(text, '\n'))
}

// storeWithHelper hands the password to a program, on its standard input.
func storeWithHelper(ctx context.Context, program string, t pullToken) error {
	text, err := json.Marshal(map[string]string{"ServerURL": t.Registry, "Username": t.Username, "Secret": t.Password})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "store")
	cmd.Stdin = bytes.NewReader(text)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}
