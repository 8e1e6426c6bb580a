function n(e){let t=`${e.machine}\\`.toLowerCase();return(e.pathname.toLowerCase().startsWith(t)?e.pathname.slice(t.length):e.pathname).replace(/^private\$\\/i,"")}export{n as a};
