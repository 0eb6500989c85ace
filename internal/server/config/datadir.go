package config

import "path/filepath"

// KeyFile returns the path of the encryption key, unless the settings contain it.
func (c Config) KeyFile() string { return filepath.Join(c.DataDir, "holdfast.key") }

// DevFile returns the path of the file with the addresses and tokens of dev mode.
func (c Config) DevFile() string { return filepath.Join(c.DataDir, "dev.json") }

// ControlSocket returns the path of the socket on which a server accepts commands
// from the owner of its data folder. Commands use it because a second process
// cannot open the SQLite database of the server.
func (c Config) ControlSocket() string { return filepath.Join(c.DataDir, "control.sock") }
