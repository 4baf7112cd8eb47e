package node

import (
	"encoding/json"
	"fmt"
	"path"

	"holdfast/internal/vfs"
)

// resetName is a file that says that the folder is being emptied. From the moment it is there nothing of what the folder
// held counts any more, whether or not it is gone already; it holds the identity with which the folder begins anew.
const resetName = "reset.json"

// resetFolder empties a data folder that nobody serves, but for the lock, the local socket, and what is not ours. A crash
// leaves either all there was, or a folder that is emptied by the next start.
func resetFolder(fs vfs.FS, dir string, next identity) error {
	data, err := json.Marshal(next)
	if err == nil {
		err = writeFile(fs, dir, resetName, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("data folder %s cannot be emptied: %w", dir, err)
	}
	return finishReset(fs, dir)
}

// finishReset goes on with what resetFolder has begun, if it has.
func finishReset(fs vfs.FS, dir string) error {
	name := path.Join(dir, resetName)
	data, err := readFile(fs, name)
	if vfs.IsNotExist(err) {
		return nil
	}
	var next identity
	if err == nil {
		err = json.Unmarshal(data, &next)
	}
	if err == nil && next.ID == "" {
		err = fmt.Errorf("%s is damaged; remove the whole folder to have it empty", name)
	}
	for _, sub := range []string{logDir, spillDir} {
		if err == nil {
			err = removeFiles(fs, path.Join(dir, sub))
		}
	}
	if err == nil {
		err = next.save(fs, dir)
	}
	if err == nil {
		err = fs.Remove(name)
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("data folder %s cannot be emptied: %w", dir, err)
	}
	return nil
}

// removeFiles removes what is in a folder, if it is there.
func removeFiles(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if vfs.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := fs.Remove(path.Join(dir, name)); err != nil && !vfs.IsNotExist(err) {
			return err
		}
	}
	return fs.SyncDir(dir)
}
