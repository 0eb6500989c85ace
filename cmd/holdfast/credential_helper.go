package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// helperName is what Docker calls the program that knows passwords: its own
// prefix, and the name in its settings.
const (
	helper     = "holdfast"
	helperName = "docker-credential-" + helper

	loginName = "_token" // whom the registry takes a token from
)

func (a *app) configureDocker() *cobra.Command {
	var bin string
	cmd := &cobra.Command{
		Use: "configure-docker", Short: "Let docker and its kin sign in to the registry by themselves",
		Long: "Names this program in Docker's settings (~/.docker/config.json, or DOCKER_CONFIG) as the one that knows the\n" +
			"password of the registry, and makes it available as " + helperName + ", beside itself unless --bin names\n" +
			"another folder of the PATH. From then on docker, crane, skopeo, oras and cosign get a fresh token for every command.",
		Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			host, err := a.registryHost(ctx)
			if err != nil {
				return err
			}
			if err := a.installHelper(bin); err != nil {
				return err
			}
			settings, err := readDockerConfig()
			if err != nil {
				return err
			}
			if err := settings.nameHelper(host); err != nil {
				return err
			}
			a.note("%s signs in to %s by itself now", settings.path, host)
			return nil
		}),
	}
	cmd.Flags().StringVar(&bin, "bin", "", "`FOLDER` of the PATH to make "+helperName+" available in")
	return cmd
}

// installHelper makes this program available under the name that Docker looks
// for.
func (a *app) installHelper(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Dir(self)
	}
	link := filepath.Join(dir, helperName)
	if err := relink(self, link); err != nil {
		return usage("cannot make %s: %v", link, err).hint("name a folder of your PATH that you may write to: --bin FOLDER")
	}
	if found, err := exec.LookPath(helperName); err != nil {
		a.note("warning: %s is not on your PATH, and Docker will not find %s", dir, helperName)
	} else if found, _ = filepath.EvalSymlinks(found); found != self {
		a.note("warning: another %s comes first on your PATH", helperName)
	}
	return nil
}

// relink makes link lead to target. It takes the place of another link, but not
// of a file.
func relink(target, link string) error {
	old, err := os.Readlink(link)
	switch {
	case err == nil && old == target:
		return nil
	case err == nil:
		if err := os.Remove(link); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is a file of that name")
	}
	return os.Symlink(target, link)
}

// nameHelper puts this program into Docker's settings for one host, and leaves
// the rest of them as it is.
func (c dockerConfig) nameHelper(host string) error {
	helpers := map[string]string{}
	if err := c.get("credHelpers", &helpers); err != nil {
		return err
	}
	if helpers[host] == helper {
		return nil
	}
	if helpers == nil {
		helpers = map[string]string{}
	}
	helpers[host] = helper
	return c.put("credHelpers", helpers)
}

// credentialHelper answers Docker, which calls it with a verb and what it is
// about on standard input.
func (a *app) credentialHelper() *cobra.Command {
	cmd := a.branch("credential-helper", "Answer Docker, which asks for the password of the registry")
	cmd.Hidden = true // Docker calls it, by its other name
	for verb, answer := range map[string]task{"get": a.helperGet, "list": a.helperList, "erase": a.helperErase, "store": a.helperStore} {
		cmd.AddCommand(&cobra.Command{Use: verb, Short: "Answer the verb " + verb, Args: cobra.NoArgs, RunE: a.do(answer)})
	}
	return cmd
}

// notFound is what Docker takes for somebody without a password.
const notFound = "credentials not found in native keychain"

// helperGet answers with a fresh token, if the registry asked about is the
// server's.
func (a *app) helperGet(ctx context.Context, _ *cobra.Command, _ []string) error {
	asked, err := io.ReadAll(io.LimitReader(a.in, 4096))
	if err != nil {
		return err
	}
	server := strings.TrimSpace(string(asked))
	host, token, err := a.registryToken(ctx)
	if err != nil {
		fmt.Fprintln(a.out, err) // Docker shows what is on standard output
		return err
	}
	if !isRegistry(server, host) {
		fmt.Fprintln(a.out, notFound)
		return newProblem(exitNotFound, "%s is not the registry of this server", server)
	}
	return json.NewEncoder(a.out).Encode(map[string]string{"ServerURL": server, "Username": loginName, "Secret": token})
}

// isRegistry tells whether Docker means a host: it may write an address.
func isRegistry(server, host string) bool {
	_, rest, ok := strings.Cut(server, "://")
	if !ok {
		rest = server
	}
	rest, _, _ = strings.Cut(rest, "/")
	return rest == host || strings.HasSuffix(rest, "."+host)
}

// registryToken returns the host of the registry, and a token for it.
func (a *app) registryToken(ctx context.Context) (host, token string, err error) {
	if host, err = a.registryHost(ctx); err != nil {
		return "", "", err
	}
	api, err := a.server()
	if err != nil {
		return "", "", err
	}
	token, err = a.tokenFor(ctx, api, host)
	return host, token, err
}

// helperList answers which passwords there are.
func (a *app) helperList(ctx context.Context, _ *cobra.Command, _ []string) error {
	host, err := a.registryHost(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(a.out).Encode(map[string]string{host: loginName})
}

// helperErase has nothing to forget: nothing was kept.
func (a *app) helperErase(context.Context, *cobra.Command, []string) error { return nil }

// helperStore refuses passwords: there is one for every command.
func (a *app) helperStore(context.Context, *cobra.Command, []string) error {
	p := usage("passwords are not kept: docker login is not needed")
	fmt.Fprintln(a.out, p.text)
	return p
}
