package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

const (
	pullRole       = "registry.pull"
	pullTokensPath = "/pull-tokens" // after the issuer's address: who signs pull tokens
	maxPullLife    = 365 * 24 * time.Hour
)

// pullTokens is the commands of pull tokens.
func (a *app) pullTokens() *cobra.Command {
	cmd := a.branch("pull-token", "Manage passwords that can pull images and nothing else",
		a.createPullToken(), a.listPullTokens(), a.revokePullToken())
	cmd.Long = "A pull token is an identity with the role " + pullRole + ", and a password that proves it: a token signed with a key\n" +
		"that is then thrown away. It is for what can only keep a user name and a password; a workload with a token of\n" +
		"its own needs none."
	return cmd
}

// A pullToken is what is shown once.
type pullToken struct {
	Registry string `json:"registry"`
	Username string `json:"username"`
	Password string `json:"password,omitempty"`
	Expiry   string `json:"expiry"`
}

func (a *app) createPullToken() *cobra.Command {
	var group, name, life string
	var save bool
	cmd := &cobra.Command{
		Use: "create --group GROUP", Short: "Create a pull token; its password is shown once",
		Example: "  holdfast auth pull-token create --group acme/platform --name laptop --life 30d --save-docker",
		Args:    cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if group == "" {
				return usage("--group is needed")
			}
			d, err := parseDuration(life)
			if err != nil || d < time.Minute || d > maxPullLife {
				return usage("--life: %q is not a duration from 1m to 365d", life)
			}
			t, err := a.makePullToken(ctx, group, name, d)
			if err != nil {
				return err
			}
			if save {
				if err := a.saveDocker(ctx, &t); err != nil {
					return fmt.Errorf("the pull token %s is created, but not saved: %w", t.Username, err)
				}
			}
			return a.printPullToken(t)
		}),
	}
	a.registerRef(cmd, &group, "group", groups(), "`GROUP` whose images it can pull, with all below it")
	cmd.Flags().StringVar(&name, "name", "", "`NAME` to know it by (pull-token and some digits)")
	cmd.Flags().StringVar(&life, "life", "720h", "`DURATION` it is good for, such as 12h or 30d; 365d at most")
	cmd.Flags().BoolVar(&save, "save-docker", false, "put it where docker and its like look, instead of printing the password")
	return cmd
}

func (a *app) makePullToken(ctx context.Context, group, name string, life time.Duration) (t pullToken, err error) {
	group, err = a.resolve(ctx, groups(), group)
	if err != nil {
		return t, fmt.Errorf("--group: %w", err)
	}
	role, err := a.resolve(ctx, roles(), "/"+pullRole)
	if err != nil {
		return t, err
	}
	if t.Registry, err = a.registryAddress(); err != nil {
		return t, err
	}
	issuer, err := a.issuer()
	if err != nil {
		return t, err
	}
	if name == "" {
		name = "pull-token-" + randomHex(4)
	}
	now := time.Now().Truncate(time.Second)
	subject := randomHex(16)
	password, keys, err := signPullToken(map[string]any{
		"iss": issuer + pullTokensPath, "sub": subject, "aud": issuer, "iat": now.Unix(), "exp": now.Add(life).Unix(), "jti": randomHex(16),
	})
	if err != nil {
		return t, err
	}
	t.Password, t.Expiry = password, shortTime(now.Add(life))
	t.Username, err = a.createPuller(ctx, group, role, &iampb.Identity{
		Name: name, Description: "Pulls images, with a password",
		Relationship: &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{
			Issuer: issuer + pullTokensPath, Subject: subject, IssuerKeys: keys, ExpirationTime: timestamppb.New(now.Add(life)),
		}},
	})
	return t, err
}

// createPuller creates the identity with its role, or neither.
func (a *app) createPuller(ctx context.Context, group, role string, identity *iampb.Identity) (uid string, err error) {
	req := &iampb.CreateIdentityRequest{Parent: group, Identity: identity}
	service := iampb.NewIdentitiesServiceClient(a)
	m, err := call(ctx, service.CreateIdentity, req,
		map[string]string{"parent": "--group", "name": "--name", "static_keys.expiration_time": "--life"})
	if err != nil {
		return "", err
	}
	uid = m.GetUid()
	if err = a.bind(ctx, uid, role, group); err == nil {
		return uid, nil
	}
	undo := &iampb.DeleteIdentityRequest{Uid: uid}
	if _, left := call(context.WithoutCancel(ctx), service.DeleteIdentity, undo, nil); left != nil {
		a.note("identity %s is left over: %v", uid, left)
	}
	return "", err
}

// signPullToken signs claims with a key of its own, and returns the token and
// the public key as a JSON Web Key Set. The private key is gone afterwards.
func signPullToken(claims map[string]any) (token, keys string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return "", "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	id := randomHex(8)
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": id, "x": encode(point[1:33]), "y": encode(point[33:65]),
	}}})
	if err != nil {
		return "", "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", "", err
	}
	text := encode([]byte(`{"alg":"ES256","kid":"`+id+`","typ":"JWT"}`)) + "." + encode(payload)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature), string(set), nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (a *app) printPullToken(t pullToken) error {
	format, err := a.value("output")
	if err != nil {
		return err
	}
	switch format.value {
	case "json":
		return a.json(t)
	case "id":
		fmt.Fprintln(a.out, t.Username)
		return nil
	case "yaml", "csv":
		return usage("a pull token is shown as a table, as json, or by its id")
	}
	a.pairs([][2]string{{"registry", t.Registry}, {"username", t.Username}, {"password", t.Password}, {"until", t.Expiry}})
	if t.Password != "" {
		a.note("the password is not shown again; to use it: docker login --username %s --password-stdin %s", t.Username, t.Registry)
	}
	return nil
}

// pullTokens is identities, shown as pull tokens.
func pullTokens() noun {
	n := identities()
	n.use, n.one = "pull-tokens", "pull token"
	n.columns = columnsOf("name", "uid", "expires=staticKeys.expirationTime", "lastSeen=lastSeenTime")
	n.wide = columnsOf("description", "createTime")
	return n
}

// isPullToken tells pull tokens from other identities with keys.
func isPullToken(m protoreflect.Message, issuer string) bool {
	return m.Interface().(*iampb.Identity).GetStaticKeys().GetIssuer() == issuer+pullTokensPath
}

func (a *app) listPullTokens() *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use: "list", Short: "List the pull tokens you can see", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			issuer, err := a.issuer()
			if err != nil {
				return err
			}
			req := &iampb.ListIdentitiesRequest{RelationshipType: iampb.RelationshipType_RELATIONSHIP_TYPE_STATIC}
			if err := a.within(ctx, group, req); err != nil {
				return fmt.Errorf("--group: %w", err)
			}
			var found []*iampb.Identity
			for m, err := range a.items(ctx, identities().method("List"), req.ProtoReflect(), paging{}) {
				if err != nil {
					return err
				}
				if isPullToken(m, issuer) {
					found = append(found, m.Interface().(*iampb.Identity))
				}
			}
			return showAll(a, pullTokens().view(), found)
		}),
	}
	a.registerRef(cmd, &group, "group", groups(), "only those in this `GROUP` or below it")
	return cmd
}

func (a *app) revokePullToken() *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke PULL-TOKEN...", Short: "Delete pull tokens, so that they stop working at once", Args: cobra.MinimumNArgs(1),
		RunE: a.ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			issuer, err := a.issuer()
			if err != nil {
				return err
			}
			for _, text := range args {
				uid, err := a.resolve(ctx, pullTokens(), text)
				if err != nil {
					return err
				}
				m, err := a.get(ctx, identities(), uid)
				if err != nil {
					return err
				}
				if !isPullToken(m, issuer) {
					return usage("%s is an identity, but not a pull token", strings.TrimSpace(text)).hint("to delete it: holdfast iam identities delete " + uid)
				}
			}
			return a.delete(ctx, pullTokens(), cmd, args)
		}),
	}
	cmd.Flags().BoolP("yes", "y", false, "do not ask")
	addDryRun(cmd)
	return cmd
}
